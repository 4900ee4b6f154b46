#include "passes/plan_report.h"

#include <algorithm>

#include "passes/remat.h"
#include "passes/simulator.h"

namespace remat {

PlanReport planReport(const Analysis& analysis, const PlanningInput& input, const ir::Plan& plan,
                      const OptimizeOptions& options) {
  PlanReport report;
  const Simulator simulator(input);
  report.before = stepMemory(input, simulator.keepAll());
  report.after = stepMemory(input, plan.keep);
  report.values = decidedValues(input, plan);
  constexpr int kBudgets = 9;
  std::vector<Budget> budgets(kBudgets);
  for (int i = 0; i < kBudgets; ++i) {
    budgets[i].fraction = static_cast<double>(kBudgets - i) / (kBudgets + 1);
  }
  report.curve = planCurve(analysis, budgets, options);
  // Budgets below the lowest reachable peak have no plan.
  const int64_t lowest = report.curve.back().predicted_peak;
  report.curve.erase(std::remove_if(report.curve.begin(), report.curve.end() - 1,
                                    [&](const ir::Plan& each) {
                                      return each.predicted_peak > each.budget ||
                                             each.budget < lowest;
                                    }),
                     report.curve.end() - 1);
  return report;
}

}  // namespace remat
