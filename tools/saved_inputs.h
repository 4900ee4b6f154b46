#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace remat::tools {

/// The model's arguments from a file: a tuple, a list or a single tensor saved by Python's
/// `torch.save`, or tensors saved by C++'s `torch::save`. Which tensors require grad carries over.
/// Throws ToolError.
std::vector<c10::IValue> loadInputs(const std::string& path, c10::Device device);

/// `value` with the element types that `type` declares: what Python saves says of its lists and
/// dicts only that they hold something. What doesn't fit stays as it is, for the model to refuse.
c10::IValue typedAs(const c10::IValue& value, const c10::TypePtr& type);

}  // namespace remat::tools
