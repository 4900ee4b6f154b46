#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <utility>
#include <vector>

namespace remat {

/// The default random generators of the CPU and of `device`, put back when the scope ends.
class RandomStateScope {
 public:
  explicit RandomStateScope(c10::Device device);
  ~RandomStateScope();
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// Seeds the default random generators of the CPU and of `device`.
void seedGenerators(c10::Device device, uint64_t seed);

/// Whatever a training step may change in a module: attributes of every kind (buffers, flags,
/// counters, containers, parameters that the forward itself writes) and gradients. Taken when
/// constructed; `restore` puts it back, as often as asked. Tensors and containers keep their
/// identity. Costs a copy of every parameter and buffer.
class ModuleState {
 public:
  explicit ModuleState(const torch::jit::Module& module);
  ~ModuleState();
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  void restore();

 private:
  struct Snapshot;
  struct Attribute;
  std::vector<Attribute> attributes_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;  ///< parameter and its gradient
};

}  // namespace remat
