#include "tools/html_report.h"

#include <torch/version.h>

#include <utility>

#include "llvm/ADT/StringRef.h"
#include "passes/roofline.h"
#include "tools/command_line.h"
#include "tools/report_template.h"
#include "tools/version.h"

namespace remat::tools {
namespace {

namespace json = llvm::json;

json::Array pointsJson(const StepMemory& memory) {
  json::Array points;
  for (const StepMemory::Point& point : memory.points) {
    points.push_back(json::Array{point.instant, point.bytes});
  }
  return points;
}

json::Object peakJson(const StepMemory& memory) {
  json::Array holds;
  for (const StepMemory::Part& part : memory.parts) {
    if (part.bytes == 0) continue;
    holds.push_back(json::Object{{"name", part.name}, {"bytes", part.bytes}});
  }
  return json::Object{{"instant", memory.peak.instant},
                      {"bytes", memory.peak.bytes},
                      {"phase", memory.peaksInBackward() ? "backward" : "forward"},
                      {"op", memory.op},
                      {"module_path", memory.module_path},
                      {"source", memory.source},
                      {"holds", std::move(holds)}};
}

json::Object timelineJson(const PlanReport& report) {
  return json::Object{{"forward_instants", report.before.forward_instants},
                      {"instants", report.before.instants},
                      {"before", pointsJson(report.before)},
                      {"after", pointsJson(report.after)},
                      {"peaks", json::Object{{"before", peakJson(report.before)},
                                             {"after", peakJson(report.after)}}}};
}

json::Object pointJson(const ir::Plan& plan, bool chosen) {
  return json::Object{{"budget", plan.budget},
                      {"predicted_peak", plan.predicted_peak},
                      {"recompute_share", plan.recompute_share},
                      {"lower_bound_share", plan.lower_bound_share},
                      {"chosen", chosen}};
}

json::Array curveJson(const OptimizeResult& result) {
  json::Array curve;
  for (const ir::Plan& plan : result.report->curve) curve.push_back(pointJson(plan, false));
  if (result.changed) curve.push_back(pointJson(result.plan, true));
  return curve;
}

json::Array valuesJson(const std::vector<DecidedValue>& values) {
  json::Array array;
  for (const DecidedValue& value : values) {
    array.push_back(json::Object{{"name", value.name},
                                 {"op", value.op},
                                 {"module_path", value.module_path},
                                 {"source", value.source},
                                 {"bytes", value.bytes},
                                 {"seconds", value.seconds},
                                 {"decision", value.recomputed ? "recomputed" : "kept"}});
  }
  return array;
}

}  // namespace

json::Object reportJson(const Report& report) {
  const OptimizeResult& result = *report.result;
  json::Object object = toJson(report);
  object["command"] = commandLine();
  object["versions"] = std::string("remat ") + kToolVersion + ", LibTorch " + TORCH_VERSION;
  object["method"] = result.annotations.method;
  object["inputs"] = result.annotations.inputs;
  object["loss"] = result.annotations.loss;
  if (!result.report) return object;
  object["timeline"] = timelineJson(*result.report);
  object["curve"] = curveJson(result);
  object["values"] = valuesJson(result.report->values);
  return object;
}

std::string reportHtml(const Report& report) {
  json::Object object = reportJson(report);
  const OptimizeResult& result = *report.result;
  object["derived"] = derivationText(result.profile);
  object["times_text"] = timesText(result.profile);
  if (result.changed) object["graph"] = result.after_ir;
  const std::string data = jsonText(std::move(object));
  const auto [before, after] = llvm::StringRef(kReportTemplate).split("@DATA@");
  std::string html = before.str();
  // No text in the data may end the element that holds it.
  for (const char c : data) html += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return html + after.str();
}

}  // namespace remat::tools
