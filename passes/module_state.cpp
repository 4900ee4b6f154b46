#include "passes/module_state.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <mutex>

namespace remat {
namespace {

std::vector<at::Generator> defaultGenerators(c10::Device device) {
  std::vector<at::Generator> generators{
      at::globalContext().defaultGenerator(c10::Device(c10::kCPU))};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

}  // namespace

RandomStateScope::RandomStateScope(c10::Device device) {
  for (at::Generator& generator : defaultGenerators(device)) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor state = generator.get_state();
    states_.emplace_back(generator, std::move(state));
  }
}

RandomStateScope::~RandomStateScope() {
  for (auto& [generator, state] : states_) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

void seedGenerators(c10::Device device, uint64_t seed) {
  for (at::Generator& generator : defaultGenerators(device)) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

/// One value and all that it held, with every tensor and container itself (others may hold the
/// same: an LSTM's list of weights are its parameters) and a copy of each tensor's elements.
struct ModuleState::Snapshot {
  c10::IValue value;
  at::Tensor elements;             ///< of a tensor
  std::vector<Snapshot> contents;  ///< of a list or tuple; of a dict: key, value, key, value, …

  explicit Snapshot(const c10::IValue& held) : value(held) {
    if (held.isTensor()) {
      if (held.toTensor().defined()) elements = held.toTensor().detach().clone();
    } else if (held.isList()) {
      for (const c10::IValue& inner : held.toListRef()) contents.emplace_back(inner);
    } else if (held.isTuple()) {
      for (const c10::IValue& inner : held.toTupleRef().elements()) contents.emplace_back(inner);
    } else if (held.isGenericDict()) {
      for (const auto& entry : held.toGenericDict()) {
        contents.emplace_back(entry.key());
        contents.emplace_back(entry.value());
      }
    }
  }

  /// Running statistics change without a new version, so contents are compared.
  void restore() {
    for (Snapshot& inner : contents) inner.restore();
    if (elements.defined()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.detach().equal(elements)) tensor.detach().copy_(elements);
    } else if (value.isList()) {
      c10::List<c10::IValue> list = value.toList();
      list.clear();
      for (const Snapshot& inner : contents) list.push_back(inner.value);
    } else if (value.isGenericDict()) {
      c10::Dict<c10::IValue, c10::IValue> dict = value.toGenericDict();
      dict.clear();
      for (size_t i = 0; i < contents.size(); i += 2) {
        dict.insert(contents[i].value, contents[i + 1].value);
      }
    }
  }
};

struct ModuleState::Attribute {
  torch::jit::Module owner;
  size_t slot;
  Snapshot snapshot;
};

ModuleState::ModuleState(const torch::jit::Module& module) {
  const at::NoGradGuard no_grad;
  for (const torch::jit::Module& owner : module.modules()) {
    const auto& type = owner.type();
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      if (type->getAttribute(slot)->is_module()) continue;
      const c10::IValue value = owner._ivalue()->getSlot(slot);
      if (value.isCustomClass() || value.isCapsule()) continue;  // can't be copied in general
      attributes_.push_back({owner, slot, Snapshot(value)});
    }
  }
  for (const at::Tensor& parameter : module.parameters()) {
    gradients_.emplace_back(parameter, parameter.grad());
  }
}

ModuleState::~ModuleState() = default;

void ModuleState::restore() {
  const at::NoGradGuard no_grad;
  for (Attribute& attribute : attributes_) {
    attribute.snapshot.restore();
    // Not setattr: it looks at the type of what is set, and a tensor may be undefined.
    attribute.owner._ivalue()->setSlot(attribute.slot, attribute.snapshot.value);
  }
  for (auto& [parameter, gradient] : gradients_) parameter.mutable_grad() = gradient;
}

}  // namespace remat
