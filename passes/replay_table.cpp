#include "passes/replay_table.h"

#include <llvm/ADT/StringMap.h>

#include <algorithm>

namespace remat {
namespace {

struct Group {
  const char* reason;
  bool fresh;         ///< its results never share bytes with an input
  const char* names;  ///< separated by blanks, without `aten::`
};

// The order of a reduction inside a kernel depends on sizes and thread count only, and both are the
// same in a replay: "same inputs, same bits" is what the groups below rely on.
constexpr Group kGroups[] = {
    {"elementwise arithmetic: each element is a function of the inputs' elements", true,
     "add sub rsub mul div true_divide floor_divide remainder fmod pow float_power neg abs "
     "absolute sign "
     "sgn square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos "
     "atan "
     "atan2 sinh cosh asinh acosh atanh arcsin arccos arctan arctan2 arcsinh arccosh arctanh erf "
     "erfc "
     "erfinv lgamma digamma polygamma mvlgamma sigmoid logit floor ceil round trunc fix frac clamp "
     "clamp_min clamp_max clip maximum minimum fmax fmin hypot logaddexp logaddexp2 xlogy lerp "
     "addcmul "
     "addcdiv nan_to_num deg2rad rad2deg sinc heaviside copysign nextafter i0 special_expit "
     "special_erf "
     "special_erfc special_log1p special_expm1 special_xlogy special_i0 special_i0e special_i1 "
     "special_i1e special_ndtr special_log_ndtr special_entr angle complex polar threshold"},
    {"activation: elementwise, no random part", true,
     "relu relu6 gelu silu mish elu selu celu leaky_relu prelu hardtanh hardswish hardsigmoid "
     "hardshrink "
     "softshrink softplus log_sigmoid log_sigmoid_forward glu tanh"},
    {"comparison and logic: no gradient, elementwise", true,
     "eq ne lt le gt ge equal isnan isinf isfinite isposinf isneginf isclose allclose logical_and "
     "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not "
     "bitwise_left_shift bitwise_right_shift greater greater_equal less less_equal not_equal "
     "__and__ "
     "__or__ __xor__ __lshift__ __rshift__ where masked_fill"},
    {"softmax and its relatives: a reduction and an elementwise op", true,
     "softmax log_softmax _softmax _log_softmax logsumexp cumsum cumprod logcumsumexp cummax "
     "cummin diff"},
    {"matrix product: one library call, deterministic for given shapes and threads", true,
     "matmul mm bmm addmm addbmm baddbmm addmv mv dot vdot inner outer ger addr linear bilinear "
     "linalg_vecdot kron cross linalg_cross cdist"},
    {"convolution: one library call; on CUDA under the forward's flags", true,
     "conv1d conv2d conv3d convolution _convolution conv_transpose1d conv_transpose2d "
     "conv_transpose3d "
     "conv_tbc"},
    {"normalisation: batch_norm and instance_norm are replayed without their running statistics",
     true,
     "batch_norm instance_norm layer_norm native_layer_norm group_norm native_group_norm rms_norm "
     "cosine_similarity"},
    {"pooling and resampling: windows at fixed places", true,
     "max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices "
     "max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
     "adaptive_avg_pool2d "
     "adaptive_avg_pool3d _adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d "
     "adaptive_max_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
     "upsample_linear1d "
     "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa "
     "_upsample_bicubic2d_aa __interpolate grid_sampler grid_sampler_2d grid_sampler_3d "
     "affine_grid_generator im2col col2im"},
    {"reduction: fixed order for given shapes and threads", true,
     "sum nansum mean nanmean prod amax amin aminmax max min argmax argmin median nanmedian var "
     "std "
     "var_mean std_mean norm linalg_norm linalg_vector_norm linalg_matrix_norm frobenius_norm "
     "nuclear_norm all any count_nonzero trace sort argsort topk kthvalue msort quantile "
     "nanquantile"},
    {"loss: elementwise, then a reduction", true,
     "mse_loss l1_loss smooth_l1_loss huber_loss nll_loss nll_loss2d nll_loss_nd "
     "cross_entropy_loss "
     "binary_cross_entropy binary_cross_entropy_with_logits kl_div margin_ranking_loss "
     "cosine_embedding_loss hinge_embedding_loss soft_margin_loss triplet_margin_loss "
     "poisson_nll_loss multi_margin_loss multilabel_margin_loss pairwise_distance"},
    {"lookup by given indices: the result's shape is that of the indices (masks are found on the "
     "node)",
     true,
     "embedding embedding_bag _embedding_bag index index_select gather take take_along_dim one_hot "
     "bucketize "
     "searchsorted"},
    {"out-of-place scatter: the base is copied, duplicates are added in a fixed order on CPU and "
     "under the "
     "forward's determinism flags on CUDA",
     true,
     "scatter scatter_add scatter_reduce index_add index_copy index_fill masked_scatter "
     "select_scatter "
     "slice_scatter diagonal_scatter index_put fill"},
    {"joins and copies: bytes are moved", true,
     "cat concat concatenate stack hstack vstack dstack column_stack repeat tile flip fliplr "
     "flipud roll "
     "rot90 tril triu constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
     "replication_pad1d replication_pad2d replication_pad3d clone block_diag renorm"},
    {"creation: depends on sizes and options only", true,
     "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange linspace "
     "logspace "
     "eye tensor scalar_tensor tril_indices triu_indices hann_window hamming_window "
     "blackman_window kaiser_window bartlett_window"},
    {"attention and recurrent nets: deterministic without dropout, which is checked on the node",
     true,
     "scaled_dot_product_attention lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell "
     "rnn_relu_cell"},
    {"linear algebra: one LAPACK call without pivoting choices that vary", true,
     "cholesky linalg_cholesky inverse linalg_inv det linalg_det slogdet linalg_slogdet "
     "linalg_solve triangular_solve linalg_solve_triangular matrix_exp linalg_matrix_exp "
     "matrix_power "
     "linalg_matrix_power"},
    {"spectral transform: one library call", true,
     "fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn "
     "fft_ifftn "
     "fft_rfftn fft_irfftn fft_fftshift fft_ifftshift stft istft"},
    {"view: the same bytes under other sizes and strides", false,
     "view view_as reshape reshape_as _reshape_alias flatten unflatten squeeze unsqueeze transpose "
     "permute t numpy_T mT mH adjoint movedim moveaxis swapaxes swapdims select slice narrow "
     "expand "
     "expand_as unfold diagonal chunk split split_with_sizes tensor_split hsplit vsplit dsplit "
     "unbind "
     "as_strided alias detach real imag view_as_real view_as_complex conj resolve_conj resolve_neg "
     "unsafe_chunk unsafe_split unsafe_split_with_sizes ravel broadcast_to "},
    {"view or copy, as strides and options ask for: the same each time", false,
     "contiguous to type_as atleast_1d atleast_2d atleast_3d einsum tensordot sum_to_size "
     "broadcast_tensors meshgrid pixel_shuffle pixel_unshuffle channel_shuffle "
     "native_channel_shuffle "
     "conj_physical chain_matmul linalg_multi_dot cartesian_prod cpu cuda positive "
     "lift lift_fresh "
     "as_tensor pad"},
    {"question about sizes, types and devices: no tensor is read", false,
     "size sym_size stride numel dim len is_floating_point is_complex is_contiguous "
     "storage_offset __contains__ get_device result_type promote_types can_cast __is__ "
     "__isnot__ __not__ __derive_index __range_length"},
    {"arithmetic of Python numbers and strings", false,
     "Int Float Bool Complex IntImplicit FloatImplicit ScalarImplicit item floordiv "
     "format str ord"},
    {"reading from containers that nobody writes: writers are found by alias analysis", false,
     "__getitem__ list keys values items get"},
};

// Without namespace aten.
constexpr Group kOtherGroups[] = {
    {"structure: containers, attributes and numbers", false,
     "prim::ListConstruct prim::ListUnpack prim::TupleConstruct prim::TupleUnpack prim::TupleIndex "
     "prim::TupleSlice prim::DictConstruct prim::NumToTensor prim::GetAttr prim::Constant "
     "prim::unchecked_cast prim::unchecked_unwrap_optional prim::dtype prim::device prim::layout "
     "prim::shape prim::is_cuda prim::is_cpu prim::requires_grad prim::grad prim::data prim::min "
     "prim::max prim::abs prim::isinstance prim::Uninitialized prim::AutogradZero "
     "prim::ConstantChunk "
     "prim::type prim::is_sparse prim::is_quantized prim::is_meta prim::itemsize "
     "prim::is_nested prim::is_sparse_csr prim::is_mkldnn prim::is_xpu prim::is_xla prim::is_mps "
     "prim::is_vulkan prim::is_ipu prim::is_maia prim::is_mtia prim::nbytes prim::name "
     "prim::index"},
    {"mask of a dropout: drawn from a clone of the forward's generator", true,
     "remat::dropout_mask"},
    {"attention whose dropout has a mask of its own: matrix products and a softmax", true,
     "remat::attention_weights remat::attention"},
    {"what an in-place operator would write, in a tensor of its own: elementwise arithmetic", true,
     "remat::add remat::sub remat::mul remat::div"},
    {"ops of ours: identity, or an elementwise product", false, "remat::keep remat::dropout"},
};

struct Entry {
  const char* reason;
  bool fresh;
};

void addGroup(const Group& group, const char* prefix, llvm::StringMap<Entry>& table) {
  llvm::StringRef rest = group.names;
  while (!rest.empty()) {
    auto [name, tail] = rest.split(' ');
    if (!name.empty()) table[std::string(prefix) + name.str()] = {group.reason, group.fresh};
    rest = tail;
  }
}

const llvm::StringMap<Entry>& table() {
  static const llvm::StringMap<Entry>* const entries = [] {
    auto* made = new llvm::StringMap<Entry>;
    for (const Group& group : kGroups) addGroup(group, "aten::", *made);
    for (const Group& group : kOtherGroups) addGroup(group, "", *made);
    return made;
  }();
  return *entries;
}

const Entry* find(const std::string& op) {
  auto entry = table().find(op);
  return entry == table().end() ? nullptr : &entry->second;
}

}  // namespace

ReplayTable::ReplayTable(const std::vector<std::string>& allow_ops)
    : allowed_(allow_ops.begin(), allow_ops.end()) {}

bool ReplayTable::isKnown(const std::string& op) const {
  return find(op) != nullptr || allowed_.count(op) > 0;
}

bool makesFreshTensors(const std::string& op) {
  const Entry* entry = find(op);
  return entry != nullptr && entry->fresh;
}

std::vector<std::string> replayableOps() {
  std::vector<std::string> ops;
  for (const auto& entry : table()) ops.push_back(entry.first().str());
  std::sort(ops.begin(), ops.end());
  return ops;
}

const char* replayReason(const std::string& op) {
  const Entry* entry = find(op);
  return entry == nullptr ? nullptr : entry->reason;
}

}  // namespace remat
