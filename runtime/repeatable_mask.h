#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/generator_state.h"

namespace remat::runtime {

/// The mask of a dropout that draws, which can be had again.
class RepeatableMask {
 public:
  /// Draws the mask of `x` into `mask`, as dropoutMask does in training, 0 < p < 1.
  RepeatableMask(const at::Tensor& x, double p, at::Tensor& mask);

  /// The same mask. `x` has the first one's sizes, strides, dtype and device; its elements don't
  /// matter, nor does where in memory they are.
  at::Tensor again(const at::Tensor& x) const;

 private:
  double p_;
  size_t alignment_;
  RepeatableDraw draw_;
};

/// `x`, or a tensor like it (with any elements) whose address leaves the remainder `alignment` by
/// kAlignment bytes, as that of the first draw's x did.
at::Tensor alignedAs(const at::Tensor& x, size_t alignment);

/// The most bytes that CUDA's kernels read at once. Which number a fused dropout draws for an
/// element depends on how many of them it reads at once, and that on x's address.
inline constexpr size_t kAlignment = 32;
size_t alignmentOf(const at::Tensor& x);

}  // namespace remat::runtime
