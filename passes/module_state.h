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

/// Whatever a training step may change in a module: buffers, attributes that are no parameters
/// (flags, counters), and gradients. Taken when constructed; `restore` puts it back, as often as
/// asked. Parameters' values are not part of it.
class ModuleState {
 public:
  explicit ModuleState(const torch::jit::Module& module);
  void restore();

 private:
  struct Attribute {
    torch::jit::Module owner;
    std::string name;
    c10::IValue value;  ///< the attribute itself, so that tensors keep their identity
    c10::IValue copy;   ///< a deep copy of what it held
  };
  std::vector<Attribute> attributes_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;  ///< parameter and its gradient
};

}  // namespace remat
