#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "runtime/region_program.h"

namespace remat::runtime {

/// Runs one operator, attribute read or opaque node; returns its outputs.
std::vector<c10::IValue> callNode(const ProgramNode& node, std::vector<c10::IValue> inputs);

}  // namespace remat::runtime
