#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace remat::runtime {

/// The mask of `aten::dropout(x, p, train)`: bool, x's sizes and strides, true where the element is
/// kept. Draws exactly what eager dropout draws from `generator` (default: the device's). Where
/// dropout does nothing (p == 0, not training, no elements): an empty tensor, and nothing is drawn.
at::Tensor dropoutMask(const at::Tensor& x, double p, bool train,
                       std::optional<at::Generator> generator);

/// x * mask / (1 - p), with the rounding of eager dropout; x itself where dropout does nothing.
/// Differentiable any number of times; saves the mask only.
at::Tensor applyDropout(const at::Tensor& x, const at::Tensor& mask, double p, bool train);

}  // namespace remat::runtime
