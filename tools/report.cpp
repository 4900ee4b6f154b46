#include "tools/report.h"

#include <cstdio>
#include <utility>

#include "ir/remark.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include "passes/roofline.h"
#include "tools/errors.h"
#include "tools/html_report.h"

namespace remat::tools {
namespace json = llvm::json;

json::Array remarksJson(const std::vector<ir::Remark>& remarks) {
  json::Array array;
  for (const ir::Remark& remark : remarks) {
    array.push_back(json::Object{{"reason", ir::reasonName(remark.reason)},
                                 {"op", remark.op},
                                 {"module_path", remark.module_path},
                                 {"source", remark.source},
                                 {"explanation", remark.explanation},
                                 {"remedy", ir::remedyFor(remark.reason)},
                                 {"saved_bytes", remark.saved_bytes}});
  }
  return array;
}

std::string derivationText(const ir::Profile& profile) {
  std::string text;
  if (!profile.extrapolated_from.empty()) {
    text = "extrapolated from steps at batch " + std::to_string(profile.extrapolated_from[0]) +
           " and " + std::to_string(profile.extrapolated_from[1]);
  }
  if (!profile.recorded_on.empty()) {
    text += (text.empty() ? "" : ", ") + std::string("taken over from ") + profile.recorded_on +
            " for " + profile.device + " (bytes in multiples of " +
            std::to_string(profile.rounding) + ", " + timesText(profile) + ")";
  }
  return text;
}

void addOrigin(const ir::Profile& profile, json::Object& object) {
  object["device"] = profile.device;
  object["rounding"] = profile.rounding;
  object["times"] = profile.roofline.known() ? "roofline" : "measured";
  if (profile.roofline.known()) {
    object["roofline"] = json::Array{profile.roofline.flops, profile.roofline.bytes};
  }
  if (!profile.recorded_on.empty()) object["recorded_on"] = profile.recorded_on;
  if (!profile.extrapolated_from.empty()) {
    object["extrapolated_from"] = json::Array(profile.extrapolated_from);
  }
}

namespace {

bool hasExtension(const std::string& path, llvm::StringRef extension) {
  return llvm::StringRef(path).endswith_insensitive(extension);
}

}  // namespace

llvm::json::Object toJson(const Report& report) {
  const OptimizeResult& result = *report.result;
  json::Object object{
      {"model", report.model},
      {"output", report.output},
      {"changed", result.changed},
      {"peak_bytes",
       json::Object{
           {"original", result.original_peak},
           {"predicted", result.changed ? result.plan.predicted_peak : result.original_peak},
           {"measured", result.changed ? result.measured_peak : result.original_peak}}},
      {"budget", result.plan.budget},
      {"recompute_share", result.plan.recompute_share},
      {"recompute_seconds", result.plan.recompute_seconds},
      {"lower_bound_share", result.plan.lower_bound_share},
      {"gap", result.plan.gap()},
      {"extra_time_share", result.changed ? result.extra_time_share : 0.0},
      {"kept", result.plan.kept},
      {"recomputed", result.plan.recomputed},
      {"planning_seconds", result.plan.planning_seconds},
      {"remarks", remarksJson(result.remarks)},
  };
  addOrigin(result.profile, object);
  if (!report.parity.empty()) object["parity"] = report.parity;
  if (!result.changed) object["reason_unchanged"] = result.reason_unchanged;
  return object;
}

void checkReportExtension(const std::string& path) {
  if (path.empty() || hasExtension(path, ".json") || hasExtension(path, ".html")) return;
  throw usage("--report '" + path + "' ends neither in .json nor in .html");
}

std::string reportText(const Report& report, const std::string& path) {
  return hasExtension(path, ".html") ? reportHtml(report) : jsonText(reportJson(report));
}

std::string jsonText(llvm::json::Value value) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << llvm::formatv("{0:2}", value) << '\n';
  return stream.str();
}

}  // namespace remat::tools
