#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace remat::tools {

/// The model's arguments from a file: a tuple, a list or a single tensor saved by Python's
/// `torch.save`, or tensors saved by C++'s `torch::save`. Which tensors require grad carries over.
/// Throws ToolError.
std::vector<c10::IValue> loadInputs(const std::string& path, c10::Device device);

}  // namespace remat::tools
