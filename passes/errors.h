#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace remat {

/// The caller's mistake: what was wrong, where, and what to do.
class RematError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The budget can't be met; `what` names the smallest reachable peak.
class BudgetError : public RematError {
 public:
  BudgetError(const std::string& what, int64_t minimum_peak, std::string blockers = "")
      : RematError(what), minimum_peak(minimum_peak), blockers(std::move(blockers)) {}
  int64_t minimum_peak;  ///< bytes
  std::string blockers;  ///< what of it can't be recomputed, see blockersText; may be empty
};

/// OptimizeOptions::keep_modules or recompute_modules don't fit the model.
class ChoiceError : public RematError {
 public:
  using RematError::RematError;
};

/// The model doesn't train on these inputs, as it is: its step fails, or its output gives a
/// backward nothing to start from.
class StepError : public RematError {
 public:
  using RematError::RematError;
};

}  // namespace remat
