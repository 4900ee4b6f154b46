#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace remat::tools {

/// What of a device's memory is left for the training step.
struct DeviceBudget {
  int64_t step_bytes = 0;  ///< device memory less everything below; may be negative
  std::string text;        ///< the sum, line by line
};

/// `device_memory` less parameters, buffers, inputs, optimiser state and the reserve. Gradients are
/// not taken off: they are made in the step and part of its peak. `optimizer` as
/// optimizerBytesPerElement has it. Throws std::invalid_argument.
DeviceBudget deviceBudget(int64_t device_memory, const std::string& optimizer, int64_t reserve,
                          const torch::jit::Module& module, const std::vector<c10::IValue>& inputs);

}  // namespace remat::tools
