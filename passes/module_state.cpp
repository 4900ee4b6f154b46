#include "passes/module_state.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <mutex>
#include <string>

#include "passes/value_tensors.h"

namespace remat {
namespace {

std::vector<at::Generator> defaultGenerators(c10::Device device) {
  std::vector<at::Generator> generators{
      at::globalContext().defaultGenerator(c10::Device(c10::kCPU))};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

/// Writes what `copy` holds into the tensors of `value`; both have the same structure.
void copyTensors(const c10::IValue& value, const c10::IValue& copy) {
  const std::vector<at::Tensor> destinations = tensorsOf(value);
  const std::vector<at::Tensor> sources = tensorsOf(copy);
  for (size_t i = 0; i < destinations.size(); ++i) destinations[i].copy_(sources[i]);
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

ModuleState::ModuleState(const torch::jit::Module& module) {
  const at::NoGradGuard no_grad;
  for (const torch::jit::Module& owner : module.modules()) {
    const auto& type = owner.type();
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      if (type->is_parameter(slot) || type->getAttribute(slot)->is_module()) continue;
      const c10::IValue value = owner._ivalue()->getSlot(slot);
      if (value.isCustomClass() || value.isCapsule()) continue;  // can't be copied in general
      attributes_.push_back({owner, type->getAttributeName(slot), value, value.deepcopy()});
    }
  }
  for (const at::Tensor& parameter : module.parameters()) {
    gradients_.emplace_back(parameter, parameter.grad());
  }
}

void ModuleState::restore() {
  const at::NoGradGuard no_grad;
  for (Attribute& attribute : attributes_) {
    if (attribute.value.isTensor()) {
      copyTensors(attribute.value, attribute.copy);
      attribute.owner.setattr(attribute.name, attribute.value);
    } else {
      attribute.owner.setattr(attribute.name, attribute.copy.deepcopy());
    }
  }
  for (auto& [parameter, gradient] : gradients_) parameter.mutable_grad() = gradient;
}

}  // namespace remat
