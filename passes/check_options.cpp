#include "passes/check_options.h"

#include <cmath>
#include <string>

#include "passes/errors.h"

namespace remat {
namespace {

void require(bool right, const std::string& otherwise) {
  if (!right) throw RematError(otherwise);
}

}  // namespace

void checkBudget(const Budget& budget) {
  switch (budget.kind) {
    case Budget::Kind::kFraction:
      return require(budget.fraction > 0 && budget.fraction <= 1,
                     "a budget of " + std::to_string(budget.fraction) +
                         " is no share of the original's peak: give one above 0, up to 1");
    case Budget::Kind::kBytes:
      return require(budget.bytes > 0, "a budget of " + std::to_string(budget.bytes) +
                                           " bytes is no memory at all: give more");
    case Budget::Kind::kMinimum:
      return;
  }
}

void checkOptions(const OptimizeOptions& options) {
  checkBudget(options.budget);
  const std::string& autocast = options.step.autocast;
  require(autocast.empty() || autocast == "bfloat16" || autocast == "float16",
          "autocast to '" + autocast + "' is not known: give bfloat16 or float16, or nothing");
  require(!std::isnan(options.max_overhead), "the bound on extra time is no number");
  require(options.reserve_bytes >= 0,
          "the reserve of " + std::to_string(options.reserve_bytes) + " bytes is below 0");
  require(options.minimum_bytes >= 0, "the smallest storage to recompute, of " +
                                          std::to_string(options.minimum_bytes) +
                                          " bytes, is below 0");
}

}  // namespace remat
