#pragma once

#include <string>

#include "tools/verification.h"

namespace CLI {
class App;
}

namespace remat::tools {

/// What the command line says of comparing two models.
struct ComparingOptions {
  int steps = 4;
  std::string tolerance;
};

/// `needs` is the name of the flag without which these options mean nothing; empty: none.
void addComparingOptions(CLI::App& verb, ComparingOptions& options, const std::string& needs = "");

/// Throws ToolError.
Comparing comparingOptions(const ComparingOptions& options);

/// Says on stderr where the original's own kernels are not deterministic.
void noteDeterminism(const Verdict& verdict);

/// `, first in the value that aten::gelu makes at …`, where that is known, and `advice`; or, where
/// the original is as far from itself, that.
std::string differenceText(const Verdict& verdict, const std::string& advice);

}  // namespace remat::tools
