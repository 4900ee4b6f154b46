#pragma once

#include <stdexcept>
#include <string>

#include "ir/torch_error.h"

namespace remat::tools {

/// What the tool's exit codes mean.
enum ExitCode : int {
  kDone = 0,
  kRefused =
      1,  ///< unreadable or refused model, input that doesn't fit, output that can't be written
  kUsage = 2,       ///< the command line is wrong
  kOverBudget = 3,  ///< the budget can't be met, or verify measured above it
  kDifference = 4,  ///< verify found a difference
};

/// Ends the tool: one line for the user, `FILE: cause; what to do`, and the exit code.
class ToolError : public std::runtime_error {
 public:
  ToolError(ExitCode code, const std::string& message) : std::runtime_error(message), code(code) {}
  ExitCode code;
};

inline ToolError refused(const std::string& message) { return {kRefused, message}; }
inline ToolError usage(const std::string& message) { return {kUsage, message}; }

using ir::oneLine;

}  // namespace remat::tools
