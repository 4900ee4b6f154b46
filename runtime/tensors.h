#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace remat::runtime {

/// Calls `visit(tensor, element)` for a defined tensor with storage (element -1), or for each such
/// tensor of a list or tuple (element: its position at the outermost level).
template <typename Visit>
void forEachTensor(const c10::IValue& value, const Visit& visit, int32_t element = -1) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined() && tensor.has_storage()) {
      visit(tensor, element);
    }
    return;
  }
  if (value.isTensorList() || value.isOptionalTensorList() ||
      (value.isList() && !value.isIntList())) {
    int32_t position = 0;
    for (const c10::IValue& inner : value.toListRef()) {
      forEachTensor(inner, visit, element < 0 ? position : element);
      ++position;
    }
    return;
  }
  if (value.isTuple()) {
    int32_t position = 0;
    for (const c10::IValue& inner : value.toTupleRef().elements()) {
      forEachTensor(inner, visit, element < 0 ? position : element);
      ++position;
    }
  }
}

inline bool sharesBytes(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

/// Whether `a` can be told from `b` by strides and offset alone: same storage, dtype and lazy bits.
inline bool isViewAs(const at::Tensor& a, const at::Tensor& b) {
  return sharesBytes(a, b) && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

}  // namespace remat::runtime
