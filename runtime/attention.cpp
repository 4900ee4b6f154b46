#include "runtime/attention.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <limits>

namespace remat::runtime {
namespace {

bool isHalf(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

/// In the type that LibTorch computes with.
at::Tensor accurate(const at::Tensor& tensor, const at::Tensor& query) {
  const bool raised = isHalf(query) && !at::globalContext().allowFP16BF16ReductionMathSDP();
  return raised ? tensor.to(at::kFloat) : tensor;
}

/// Zero and minus infinity in place of true and false.
at::Tensor additive(const at::Tensor& mask, at::ScalarType dtype) {
  if (mask.scalar_type() != at::kBool) return mask;
  at::Tensor result = at::zeros_like(mask, mask.options().dtype(dtype));
  result.masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity());
  return result;
}

/// As many heads as the query has.
at::Tensor expanded(const at::Tensor& tensor, const Attention& attention) {
  if (!attention.grouped) return tensor;
  return tensor.repeat_interleave(attention.query.size(-3) / tensor.size(-3), -3);
}

/// What autocast makes of an operator's argument while it is on.
at::Tensor autocast(const at::Tensor& tensor) {
  const c10::DeviceType device = tensor.device().type();
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

bool isAutocastOn(const at::Tensor& tensor) {
  return at::autocast::is_autocast_enabled(tensor.device().type());
}

/// Runs `compute` as autocast runs what scaled_dot_product_attention does: with its arguments cast,
/// and off inside.
template <typename Compute>
at::Tensor withoutAutocast(Attention attention, const Compute& compute) {
  const c10::DeviceType device = attention.query.device().type();
  attention.query = autocast(attention.query);
  attention.key = autocast(attention.key);
  if (attention.mask.has_value()) attention.mask = autocast(*attention.mask);
  const c10::impl::ExcludeDispatchKeyGuard off(
      c10::DispatchKeySet(at::autocast::get_autocast_dispatch_key_from_device_type(device)));
  return compute(attention);
}

at::Tensor plainWeights(const Attention& attention) {
  const at::Tensor& q = attention.query;
  const double scale = attention.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
  const double root = std::sqrt(std::abs(scale));
  const at::Tensor query = accurate(q, q) * (scale < 0 ? -root : root);
  const at::Tensor key = expanded(accurate(attention.key, q), attention);
  std::optional<at::Tensor> mask = attention.mask;
  if (attention.causal) {
    TORCH_CHECK(!mask.has_value(),
                "scaled_dot_product_attention: Explicit attn_mask should not be set when "
                "is_causal=True");
    mask = at::ones({q.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
  }
  at::Tensor weights = at::matmul(query, key.transpose(-2, -1) * root);
  if (mask.has_value()) weights.add_(additive(*mask, query.scalar_type()));
  return at::_safe_softmax(weights, -1);
}

}  // namespace

at::Tensor attentionWeights(const Attention& attention) {
  if (!(attention.dropout > 0)) return at::empty({0}, attention.query.options());
  return isAutocastOn(attention.query) ? withoutAutocast(attention, plainWeights)
                                       : plainWeights(attention);
}

at::Tensor applyAttention(const at::Tensor& weights, const Attention& attention,
                          const at::Tensor& value) {
  if (!(attention.dropout > 0)) {
    return at::scaled_dot_product_attention(attention.query, attention.key, value, attention.mask,
                                            0.0, attention.causal, attention.scale,
                                            attention.grouped);
  }
  const auto compute = [&](const at::Tensor& v) {
    return [&weights, v](const Attention& given) {
      const at::Tensor& q = given.query;
      return at::matmul(weights, expanded(accurate(v, q), given)).to(q.scalar_type());
    };
  };
  return isAutocastOn(value) ? withoutAutocast(attention, compute(autocast(value)))
                             : compute(value)(attention);
}

}  // namespace remat::runtime
