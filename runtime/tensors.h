#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/ivalue_inl.h>

#include <vector>

namespace remat::runtime {

/// Where a tensor is in a value: the value itself, a position in its list or tuple, or deeper.
inline constexpr int32_t kWhole = -1;
inline constexpr int32_t kNested = -2;

/// Calls `visit(tensor, element)` for each defined tensor with storage in `value`; `element` is
/// kWhole, its position, or kNested inside a list of lists and the like.
template <typename Visit>
void forEachTensor(const c10::IValue& value, const Visit& visit, int32_t element = kWhole) {
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
      forEachTensor(inner, visit, element == kWhole ? position : kNested);
      ++position;
    }
    return;
  }
  if (value.isTuple()) {
    int32_t position = 0;
    for (const c10::IValue& inner : value.toTupleRef().elements()) {
      forEachTensor(inner, visit, element == kWhole ? position : kNested);
      ++position;
    }
  }
}

/// `value` with `change(tensor)` in the place of each tensor that forEachTensor visits.
template <typename Change>
c10::IValue mapTensors(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && tensor.has_storage() ? c10::IValue(change(tensor)) : value;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& inner : value.toTupleRef().elements()) {
      elements.push_back(mapTensors(inner, change));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (!value.isList() || value.isIntList()) {
    return value;
  }
  c10::impl::GenericList elements(value.toList().elementType());
  for (const c10::IValue& inner : value.toListRef()) {
    elements.push_back(mapTensors(inner, change));
  }
  return elements;
}

/// The tensor that `forEachTensor` visited as `element` of `value`; not for kNested.
inline at::Tensor tensorAt(const c10::IValue& value, int32_t element) {
  if (element == kWhole) {
    return value.toTensor();
  }
  return value.isTuple() ? value.toTupleRef().elements()[element].toTensor()
                         : value.toListRef()[element].toTensor();
}

/// The device that an operator with these arguments runs on: that of the first tensor which is on
/// an accelerator, or else the CPU.
inline c10::Device deviceOf(const std::vector<c10::IValue>& arguments) {
  c10::Device device = c10::kCPU;
  for (const c10::IValue& argument : arguments) {
    forEachTensor(argument, [&](const at::Tensor& tensor, int32_t) {
      if (device.is_cpu() && !tensor.is_meta()) device = tensor.device();
    });
    if (!device.is_cpu()) break;
  }
  return device;
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
