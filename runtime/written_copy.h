#pragma once

#include <ATen/core/Scalar.h>
#include <ATen/core/Tensor.h>

namespace remat::runtime {

/// What `x.add_(other)` and its like would write into x, in a tensor of its own: values, dtype,
/// gradients, and the error where the result doesn't fit x. The plain operator where that is the
/// same; where the two would promote (x in bfloat16, other in float) or other is larger than x, the
/// in-place operator on a copy of x: its gradients are rounded in x's dtype.
at::Tensor addToCopy(const at::Tensor& x, const at::Tensor& other, const at::Scalar& alpha);
at::Tensor subFromCopy(const at::Tensor& x, const at::Tensor& other, const at::Scalar& alpha);
at::Tensor mulCopy(const at::Tensor& x, const at::Tensor& other);
at::Tensor divCopy(const at::Tensor& x, const at::Tensor& other);

}  // namespace remat::runtime
