#pragma once

#include <string>
#include <vector>

#include "passes/options.h"

namespace remat::python {

/// What Python asks for.
struct Request {
  OptimizeOptions options;
  std::vector<Budget> budgets;  ///< of a curve
};

/// From one JSON object with the names that remat-opt's options have; budgets and sizes are texts
/// as there, or bytes. What is left out has its default. Throws std::invalid_argument naming what
/// is wrong.
Request requestFromJson(const std::string& text);

}  // namespace remat::python
