#include "runtime/packed_value.h"

#include <ATen/core/ivalue_inl.h>

namespace remat::runtime {

PackedValue::PackedValue(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    form_ = Form::kTensor;
    tensor_ = torch::autograd::SavedVariable(value.toTensor().detach(), false);
    return;
  }
  if (value.isTensorList() || value.isOptionalTensorList()) {
    form_ = value.isTensorList() ? Form::kTensorList : Form::kOptionalTensorList;
    for (const c10::IValue& element : value.toListRef()) {
      elements_.emplace_back(element);
    }
    return;
  }
  if (value.isTuple()) {
    form_ = Form::kTuple;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      elements_.emplace_back(element);
    }
    return;
  }
  plain_ = value;
}

c10::IValue PackedValue::unpack() const {
  switch (form_) {
    case Form::kPlain:
      return plain_;
    case Form::kTensor:
      return tensor_.unpack();
    case Form::kTensorList: {
      c10::List<at::Tensor> list;
      for (const auto& element : elements_) {
        list.push_back(element.unpack().toTensor());
      }
      return list;
    }
    case Form::kOptionalTensorList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& element : elements_) {
        list.push_back(element.unpack().toOptional<at::Tensor>());
      }
      return list;
    }
    case Form::kTuple: {
      std::vector<c10::IValue> values;
      values.reserve(elements_.size());
      for (const auto& element : elements_) {
        values.push_back(element.unpack());
      }
      return c10::ivalue::Tuple::create(std::move(values));
    }
  }
  TORCH_INTERNAL_ASSERT(false, "unknown form of a packed value");
}

}  // namespace remat::runtime
