#pragma once

#include <string>
#include <vector>

#include "llvm/Support/JSON.h"
#include "passes/remat.h"

namespace remat::tools {

/// What `optimize` did, for --json and --report.
struct Report {
  std::string model;
  std::string output;
  const OptimizeResult* result = nullptr;
  std::string parity;  ///< with the original, of optimize --verify; empty: not compared
};

llvm::json::Object toJson(const Report& report);
llvm::json::Array remarksJson(const std::vector<ir::Remark>& remarks);

/// How the profile came from other steps than it is for: `extrapolated from steps at batch 2 and
/// 4`, `taken over from cpu for cuda:0 (…)`; empty where everything was measured.
std::string derivationText(const ir::Profile& profile);

/// Where a profile's bytes and times are from, into a report: device, rounding, times (`measured`
/// or `roofline`), and, where they are, roofline, recorded_on, extrapolated_from.
void addOrigin(const ir::Profile& profile, llvm::json::Object& object);

/// JSON or HTML, by the extension of `path`. Throws ToolError (usage) on any other.
std::string reportText(const Report& report, const std::string& path);
void checkReportExtension(const std::string& path);

/// Indented, with a newline at the end.
std::string jsonText(llvm::json::Value value);

}  // namespace remat::tools
