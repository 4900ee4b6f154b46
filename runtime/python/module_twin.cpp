#include "runtime/python/module_twin.h"

#include <ATen/core/grad_mode.h>

#include <unordered_map>

#include "passes/value_tensors.h"

namespace remat::python {
namespace {

class TwinMaker {
 public:
  explicit TwinMaker(const std::function<at::Tensor(const at::Tensor&)>& tensor_of)
      : tensor_of_(tensor_of) {}

  c10::IValue of(const c10::IValue& value) {
    return mapLeaves(value, [this](const c10::IValue& leaf) {
      if (leaf.isTensor()) return ofTensor(leaf.toTensor());
      return leaf.isObject() ? ofObject(leaf) : leaf;
    });
  }

 private:
  c10::IValue ofTensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    const auto [found, is_new] = tensors_.try_emplace(tensor.unsafeGetTensorImpl());
    if (is_new) found->second = tensor_of_(tensor);
    return found->second;
  }

  c10::IValue ofObject(const c10::IValue& value) {
    const auto object = value.toObject();
    if (!object->type()->is_module()) return value;
    const auto known = objects_.find(object.get());
    if (known != objects_.end()) return known->second;
    auto twin = c10::ivalue::Object::create(
        c10::StrongTypePtr(object->compilation_unit(), object->type()), object->slots().size());
    objects_.emplace(object.get(), twin);
    for (size_t i = 0; i < object->slots().size(); ++i) twin->setSlot(i, of(object->getSlot(i)));
    return twin;
  }

  const std::function<at::Tensor(const at::Tensor&)>& tensor_of_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
  std::unordered_map<const c10::ivalue::Object*, c10::IValue> objects_;
};

}  // namespace

torch::jit::Module twinOf(const torch::jit::Module& module,
                          const std::function<at::Tensor(const at::Tensor&)>& tensor_of) {
  return torch::jit::Module(TwinMaker(tensor_of).of(module._ivalue()).toObject());
}

torch::jit::Module sharingTwin(const torch::jit::Module& module) {
  return twinOf(module, [](const at::Tensor& tensor) { return tensor; });
}

torch::jit::Module detachedTwin(const torch::jit::Module& module) {
  return twinOf(module, [](const at::Tensor& tensor) {
    at::Tensor twin(tensor.variable_data());
    twin.set_requires_grad(tensor.requires_grad());
    return twin;
  });
}

void takeAttributes(torch::jit::Module& module, const torch::jit::Module& from) {
  const auto& to = module._ivalue();
  const auto& attributes = from._ivalue()->slots();
  TORCH_INTERNAL_ASSERT(to->slots().size() == attributes.size(),
                        "remat: an optimised module has the original's attributes");
  for (size_t i = 0; i < attributes.size(); ++i) to->setSlot(i, attributes[i]);
}

}  // namespace remat::python
