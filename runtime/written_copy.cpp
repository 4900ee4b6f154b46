#include "runtime/written_copy.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

namespace remat::runtime {
namespace {

bool fits(const at::Tensor& x, const at::Tensor& other) {
  return at::result_type(x, other) == x.scalar_type() &&
         at::is_expandable_to(other.sizes(), x.sizes());
}

}  // namespace

at::Tensor addToCopy(const at::Tensor& x, const at::Tensor& other, const at::Scalar& alpha) {
  return fits(x, other) ? at::add(x, other, alpha) : x.clone().add_(other, alpha);
}

at::Tensor subFromCopy(const at::Tensor& x, const at::Tensor& other, const at::Scalar& alpha) {
  return fits(x, other) ? at::sub(x, other, alpha) : x.clone().sub_(other, alpha);
}

at::Tensor mulCopy(const at::Tensor& x, const at::Tensor& other) {
  return fits(x, other) ? at::mul(x, other) : x.clone().mul_(other);
}

/// Integers: the quotient is no integer, which in place is an error.
at::Tensor divCopy(const at::Tensor& x, const at::Tensor& other) {
  const bool real = !at::isIntegralType(x.scalar_type(), /*includeBool=*/true);
  return real && fits(x, other) ? at::div(x, other) : x.clone().div_(other);
}

}  // namespace remat::runtime
