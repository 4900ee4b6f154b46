#pragma once

#include <string>

#include "tools/report.h"

namespace remat::tools {

/// toJson, and what OptimizeResult::report holds: the step's memory before and after, what makes up
/// the peaks, the curve of plans, every decided value, the command and the versions.
llvm::json::Object reportJson(const Report& report);

/// The same in one page that needs nothing else: tools/report.html with the data in it.
std::string reportHtml(const Report& report);

}  // namespace remat::tools
