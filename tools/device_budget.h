#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "passes/device_memory.h"
#include "tools/budget.h"

namespace remat::tools {

/// Of what is left for a step on a GPU so much is set aside for what its caching allocator can't
/// use: free blocks that are too small, and what stays unsplit of a block.
constexpr double kFragmentationShare = 0.05;
/// What a CUDA context with cuBLAS and cuDNN is taken to hold where no device is here to ask.
constexpr int64_t kAssumedContext = int64_t{640} << 20;

/// The memory that a device has for a training program, and what of it no tensor can have.
struct MemoryCapacity {
  int64_t bytes = 0;         ///< for everything
  int64_t outside = 0;       ///< of these for the context, its libraries, other programs
  std::string outside_text;  ///< how that is known; empty: there is none of it, as on the CPU
  double fragmentation = 0;  ///< share of what is left for a step
  int64_t rounding = 1;      ///< bytes that the allocator counts in
};

/// That of a GPU which says `memory` of itself: `size` of its total, and what it holds beside this
/// process's tensors.
MemoryCapacity readCapacity(const MemorySize& size, const DeviceMemory& memory);

/// What of a device's memory is left for the training step.
struct DeviceBudget {
  int64_t step_bytes = 0;   ///< the capacity less everything below; may be negative
  int64_t fixed_bytes = 0;  ///< everything but the step and its fragmentation
  std::string text;         ///< the sum, line by line
  double fragmentation = 0;

  /// The memory that a device needs for a step of `step_bytes`.
  int64_t memoryFor(int64_t step_bytes) const;
};

/// `capacity` less context, parameters, buffers, inputs, optimiser state, the reserve, and
/// fragmentation. Gradients are not taken off: they are made in the step and part of its peak.
/// `optimizer` as optimizerBytesPerElement has it. Throws std::invalid_argument.
DeviceBudget deviceBudget(const MemoryCapacity& capacity, const std::string& optimizer,
                          int64_t reserve, const torch::jit::Module& module,
                          const std::vector<c10::IValue>& inputs);

}  // namespace remat::tools
