#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/profile.h"

namespace remat {

/// What ValueProfile::type says of a tensor.
struct TensorType {
  int64_t element_size = 0;  ///< bytes
  std::vector<int64_t> sizes;
  double elements() const;
  double bytes() const { return elements() * static_cast<double>(element_size); }
};

/// Of `Float[16, 64, 112, 112]`; nothing where it is no tensor, or one of an unknown dtype.
std::optional<TensorType> tensorType(const std::string& type);

/// What one execution of an operator costs.
struct Work {
  double flops = 0;  ///< floating-point operations, a multiplication and an addition being two
  double bytes = 0;  ///< read and written, each tensor once
};

/// The forward of node `index` of `profile`, by its operator and the shapes of what goes in and
/// out:
///
/// - convolutions: 2 · elements of the output · weight elements per output channel (transposed: of
///   the input · weight elements per input channel), as conv_flop_count of
///   torch.utils.flop_counter has it;
/// - mm, bmm, matmul, addmm, baddbmm, linear: 2 · elements of the output · length of the products
///   (mm_flop, bmm_flop there);
/// - scaled_dot_product_attention: 2 · queries · keys · (width of a query + width of a value) for
///   each batch and head (sdpa_flop_count there; nothing is taken off for a causal mask);
/// - everything else by its bytes alone: that is what limits pointwise operators, norms, poolings
///   and reductions (of a list of tensors the bytes of its storages). Views, whose results share an
///   input's bytes, and nodes that make no tensor take none.
Work forwardWork(const ir::Profile& profile, size_t index);

/// max(flops / roofline.flops, bytes / roofline.bytes), seconds (Williams, Waterman, Patterson:
/// Roofline, 2009).
double rooflineSeconds(const Work& work, const ir::Roofline& roofline);

/// `times measured` or `times by a roofline of 67 TFLOP/s and 4.8 TB/s`.
std::string timesText(const ir::Profile& profile);

/// Replaces every time of `profile` by what `roofline` says. The backward of matrix products and
/// convolutions takes two products of the forward's size, all other backwards twice the forward's
/// bytes (the gradient and what was saved are read, a gradient is written), shared out evenly among
/// a node's autograd nodes; what belongs to no node takes no time. The step takes the sum.
void applyRoofline(const ir::Roofline& roofline, ir::Profile& profile);

}  // namespace remat
