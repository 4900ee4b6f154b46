#pragma once

#include <vector>

#include "ir/plan.h"
#include "passes/step_report.h"

namespace remat {

struct Analysis;
struct OptimizeOptions;

/// What a report shows beside the figures; all of it predicted.
struct PlanReport {
  StepMemory before;
  StepMemory after;
  std::vector<DecidedValue> values;
  std::vector<ir::Plan> curve;  ///< of several budgets; the last entry is the lowest reachable peak
};

/// The report of `plan`, made by `input` of `analysis`. Plans for several budgets more.
PlanReport planReport(const Analysis& analysis, const PlanningInput& input, const ir::Plan& plan,
                      const OptimizeOptions& options);

}  // namespace remat
