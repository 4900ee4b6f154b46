#include "tools/report.h"

#include <cstdio>
#include <utility>

#include "ir/remark.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include "passes/roofline.h"
#include "tools/errors.h"

namespace remat::tools {
namespace {

namespace json = llvm::json;

json::Array remarksJson(const std::vector<ir::Remark>& remarks) {
  json::Array array;
  for (const ir::Remark& remark : remarks) {
    array.push_back(json::Object{{"reason", ir::reasonName(remark.reason)},
                                 {"op", remark.op},
                                 {"module_path", remark.module_path},
                                 {"source", remark.source},
                                 {"explanation", remark.explanation},
                                 {"saved_bytes", remark.saved_bytes}});
  }
  return array;
}

std::string escaped(llvm::StringRef text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string row(llvm::StringRef name, llvm::StringRef value) {
  return "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
}

}  // namespace

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

std::string summaryRows(const Report& report) {
  const OptimizeResult& result = *report.result;
  std::string rows = row("model", report.model) + row("output", report.output) +
                     row("step peak of the original", ir::formatBytes(result.original_peak));
  if (!result.changed) return rows + row("result", "unchanged: " + result.reason_unchanged);
  char share[32];
  std::snprintf(share, sizeof share, "%.1f %%", 100 * result.plan.recompute_share);
  char gap[64];
  std::snprintf(gap, sizeof gap, "at most %.1f %% of one forward", 100 * result.plan.gap());
  char extra[32];
  std::snprintf(extra, sizeof extra, "%.1f %%", 100 * result.extra_time_share);
  return rows + row("planned for", result.profile.device + ", " + timesText(result.profile)) +
         row("budget", ir::formatBytes(result.plan.budget)) +
         row("predicted peak", ir::formatBytes(result.plan.predicted_peak)) +
         row("measured peak", result.measured_peak > 0
                                  ? ir::formatBytes(result.measured_peak)
                                  : "not measured: " + derivationText(result.profile)) +
         row("recomputed share of one forward", share) + row("more than the least possible", gap) +
         row("predicted extra time of a step", extra) +
         (report.parity.empty() ? "" : row("trained beside the original", report.parity)) +
         row("storages kept", std::to_string(result.plan.kept)) +
         row("storages recomputed", std::to_string(result.plan.recomputed));
}

bool hasExtension(const std::string& path, llvm::StringRef extension) {
  return llvm::StringRef(path).endswith_insensitive(extension);
}

}  // namespace

llvm::json::Value toJson(const Report& report) {
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

std::string toHtml(const Report& report) {
  const OptimizeResult& result = *report.result;
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Remat: " +
      escaped(report.model) +
      "</"
      "title>\n<style>body{font-family:sans-serif;margin:2em}th{text-align:left;padding-right:2em}"
      "pre{background:#f4f4f4;padding:1em;overflow-x:auto}</style></head><body>\n<h1>" +
      escaped(report.model) + "</h1>\n<table>\n" + summaryRows(report) + "</table>\n";
  if (!result.remarks.empty()) {
    html += "<h2>Remarks</h2>\n<pre>";
    for (const ir::Remark& remark : result.remarks) html += escaped(ir::str(remark)) + "\n";
    html += "</pre>\n";
  }
  if (result.changed) html += "<h2>Graph</h2>\n<pre>" + escaped(result.after_ir) + "</pre>\n";
  return html + "</body></html>\n";
}

void checkReportExtension(const std::string& path) {
  if (path.empty() || hasExtension(path, ".json") || hasExtension(path, ".html")) return;
  throw usage("--report '" + path + "' ends neither in .json nor in .html");
}

std::string reportText(const Report& report, const std::string& path) {
  return hasExtension(path, ".html") ? toHtml(report) : jsonText(toJson(report));
}

std::string jsonText(llvm::json::Value value) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << llvm::formatv("{0:2}", value) << '\n';
  return stream.str();
}

}  // namespace remat::tools
