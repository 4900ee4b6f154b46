#include "runtime/packed_value.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/ops/empty_strided.h>

namespace remat::runtime {
namespace {

bool holdsNumbers(const c10::Type& element_type) {
  switch (element_type.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
      return true;
    default:
      return false;
  }
}

/// A copy of `tensor` with other strides; what was expanded (stride 0) is expanded again.
at::Tensor withStrides(const at::Tensor& tensor, c10::IntArrayRef strides) {
  at::Tensor source = tensor;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (strides[d] == 0 && tensor.size(d) > 1) {
      source = source.narrow(d, 0, 1);
    }
  }
  at::Tensor copy = at::empty_strided(source.sizes(), strides, tensor.options());
  if (at::has_internal_overlap(copy) == at::MemOverlap::Yes) {
    return tensor;
  }
  return copy.copy_(source).expand(tensor.sizes());
}

}  // namespace

at::Tensor savable(const at::Tensor& tensor) {
  if (tensor.is_inference()) return tensor.clone();
  // As autograd does for outputs. Wrappers of transforms refuse it, some of them.
  static constexpr c10::DispatchKeySet kWrappers(
      {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Batched,
       c10::DispatchKey::Functionalize});
  return tensor.key_set().has_any(kWrappers) ? tensor.detach() : tensor.tensor_data();
}

PackedValue::PackedValue(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    form_ = Form::kTensor;
    const at::Tensor& tensor = value.toTensor();
    if (tensor.layout() == at::kStrided) {
      strides_ = tensor.strides().vec();
    }
    tensor_ = torch::autograd::SavedVariable(savable(tensor), false);
    return;
  }
  if (value.isList() && !holdsNumbers(*value.toList().elementType())) {
    form_ = Form::kList;
    element_type_ = value.toList().elementType();
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
  // The caller's own list, which may hold other numbers by then.
  plain_ = value.isList() ? c10::IValue(value.toList().copy()) : value;
}

template <typename UnpackTensor>
c10::IValue PackedValue::unpackElements(const UnpackTensor& unpack_tensor) const {
  switch (form_) {
    case Form::kPlain:
      return plain_;
    case Form::kTensor:
      return unpack_tensor(*this);
    case Form::kList: {
      c10::impl::GenericList list(element_type_);
      for (const auto& element : elements_) {
        list.push_back(element.unpackElements(unpack_tensor));
      }
      return list;
    }
    case Form::kTuple: {
      std::vector<c10::IValue> values;
      values.reserve(elements_.size());
      for (const auto& element : elements_) {
        values.push_back(element.unpackElements(unpack_tensor));
      }
      return c10::ivalue::Tuple::create(std::move(values));
    }
  }
  TORCH_INTERNAL_ASSERT(false, "unknown form of a packed value");
}

c10::IValue PackedValue::unpack() const {
  return unpackElements([](const PackedValue& packed) { return packed.tensor_.unpack(); });
}

c10::IValue PackedValue::unpackWithStrides() const {
  return unpackElements([](const PackedValue& packed) {
    const at::Tensor tensor = packed.tensor_.unpack();
    const auto& strides = packed.strides_;
    return tensor.layout() != at::kStrided || strides.size() != static_cast<size_t>(tensor.dim()) ||
                   tensor.strides() == c10::IntArrayRef(strides)
               ? tensor
               : withStrides(tensor, strides);
  });
}

}  // namespace remat::runtime
