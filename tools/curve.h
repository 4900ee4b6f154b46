#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llvm/Support/JSON.h"
#include "passes/remat.h"

namespace remat::tools {

/// 100 %, 90 %, …, 10 % of the original's step peak.
std::vector<Budget> defaultBudgets();

/// One budget and the plan for it.
struct CurveRow {
  ir::Plan plan;
  bool minimum = false;  ///< the plan with the lowest peak, asked for as such
  bool reached() const { return plan.predicted_peak <= plan.budget; }
};

/// The memory/time curve of one model.
struct Curve {
  int64_t original_peak = 0;
  int64_t reserve = 0;
  std::string derived;        ///< see derivationText
  llvm::json::Object origin;  ///< see addOrigin
  ir::Plan minimum;
  std::string blockers;        ///< of the minimum
  std::vector<CurveRow> rows;  ///< in the order of the budgets
};

/// Plans for `budgets`, and as a last row for as little as is reachable if `with_minimum`.
Curve makeCurve(const Analysis& analysis, const std::vector<Budget>& budgets, bool with_minimum,
                const OptimizeOptions& options);

/// What `plan --json` prints.
llvm::json::Object toJson(const Curve& curve);

}  // namespace remat::tools
