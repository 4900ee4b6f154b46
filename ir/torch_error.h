#pragma once

#include <exception>
#include <string>

namespace remat::ir {

/// What an error from LibTorch says, in one line: without the C++ backtrace, and of an error inside
/// a TorchScript method only the cause and where in the source it came up: `RuntimeError: … (at
/// net.py:12)`.
std::string oneLine(const std::exception& error);

}  // namespace remat::ir
