#include "tools/curve.h"

#include <utility>

#include "tools/report.h"

namespace remat::tools {

std::vector<Budget> defaultBudgets() {
  std::vector<Budget> budgets;
  for (int tenths = 10; tenths >= 1; --tenths) {
    Budget budget;
    budget.fraction = tenths / 10.0;
    budgets.push_back(budget);
  }
  return budgets;
}

Curve makeCurve(const Analysis& analysis, const std::vector<Budget>& budgets, bool with_minimum,
                const OptimizeOptions& options) {
  Curve curve;
  curve.original_peak = analysis.original_peak;
  curve.reserve = options.reserve_bytes;
  curve.derived = derivationText(analysis.profile);
  addOrigin(analysis.profile, curve.origin);
  const std::vector<ir::Plan> plans = planCurve(analysis, budgets, options);
  curve.minimum = plans.back();
  curve.minimum.budget = curve.minimum.predicted_peak;
  curve.blockers = blockersOf(analysis, curve.minimum, options);
  for (size_t i = 0; i < budgets.size(); ++i) {
    const bool minimum = budgets[i].kind == Budget::Kind::kMinimum;
    curve.rows.push_back({minimum ? curve.minimum : plans.at(i), minimum});
  }
  if (with_minimum) curve.rows.push_back({curve.minimum, true});
  return curve;
}

llvm::json::Object toJson(const Curve& curve) {
  llvm::json::Array points;
  llvm::json::Array out_of_reach;
  for (const CurveRow& row : curve.rows) {
    if (!row.reached()) {
      if (row.plan.budget < curve.original_peak) out_of_reach.push_back(row.plan.budget);
      continue;
    }
    const ir::Plan& plan = row.plan;
    points.push_back(llvm::json::Object{{"budget", plan.budget},
                                        {"predicted_peak", plan.predicted_peak},
                                        {"recompute_share", plan.recompute_share},
                                        {"recompute_seconds", plan.recompute_seconds},
                                        {"lower_bound_share", plan.lower_bound_share},
                                        {"gap", plan.gap()},
                                        {"kept", plan.kept},
                                        {"recomputed", plan.recomputed},
                                        {"planning_seconds", plan.planning_seconds}});
  }
  llvm::json::Object object{{"original_peak", curve.original_peak},
                            {"minimum_peak", curve.minimum.predicted_peak},
                            {"lower_bound_peak", curve.minimum.peak_bound},
                            {"out_of_reach", std::move(out_of_reach)},
                            {"points", std::move(points)}};
  for (const auto& [key, value] : curve.origin) object[key] = value;
  return object;
}

}  // namespace remat::tools
