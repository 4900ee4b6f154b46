#pragma once

#include <string>

namespace remat::ir {

/// `bytes` as JSON can hold them: what is no UTF-8 is replaced.
std::string utf8Text(const std::string& bytes);

/// Whether brackets outside of strings nest deeper than `most`. LLVM's JSON reader recurses, so a
/// file of brackets must not reach it.
bool nestsDeeperThan(int most, const std::string& json);

}  // namespace remat::ir
