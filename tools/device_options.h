#pragma once

#include <c10/core/Device.h>

#include <string>

#include "passes/options.h"
#include "tools/common_options.h"
#include "tools/device_budget.h"

namespace remat::tools {

/// `cpu`, or `cuda:N` which is here. Throws ToolError: usage for what is no device, otherwise what
/// is here and what to do.
c10::Device deviceOption(const std::string& text);

/// cuBLAS is deterministic only with a workspace of fixed size, which it reads of the environment
/// when it is first used: set where it isn't, as torch.use_deterministic_algorithms asks for. For
/// the CPU nothing.
void prepareDeterministicLibraries(c10::Device device);

/// --plan-for and --roofline into `options`. Throws ToolError.
void applyTarget(const RunOptions& run, const PlanningOptions& planning, OptimizeOptions& options);

/// Where a roofline is needed and none was given: that of the device, measured there in the dtype
/// that the step multiplies in. Throws ToolError where the device isn't here.
void measureTarget(OptimizeOptions& options);

/// What --device-memory comes to on the device that is planned for, and what of it is no tensor's.
/// Read from the device where it is here. Throws ToolError for a share of a device that isn't.
MemoryCapacity memoryCapacity(const MemorySize& size, const OptimizeOptions& options);

}  // namespace remat::tools
