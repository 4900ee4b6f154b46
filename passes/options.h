#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/profile.h"

namespace remat {

/// The step peak to plan for.
struct Budget {
  enum class Kind : uint8_t { kFraction, kBytes, kMinimum };
  Kind kind = Kind::kFraction;
  double fraction = 0.5;  ///< of the original's step peak
  int64_t bytes = 0;
};

/// The training step that is profiled and measured.
struct StepOptions {
  enum class Loss : uint8_t { kRandomGradients, kCrossEntropy };
  Loss loss = Loss::kRandomGradients;
  std::string autocast;  ///< `bfloat16`, `float16`: forward and loss run under it; empty: off
  std::string device = "cpu";
  /// Under deterministic algorithms, as torch.use_deterministic_algorithms(True) has them: an
  /// operator that has none raises an error. cuDNN doesn't choose by trying either.
  bool deterministic = false;
  uint64_t seed = 0;  ///< of the gradients, the targets and the step itself
};

/// `random gradients` or `cross_entropy`, with ` under bfloat16 autocast` and ` by deterministic
/// algorithms` behind it.
std::string lossName(const StepOptions& step);

struct OptimizeOptions {
  std::string method = "forward";
  Budget budget;
  StepOptions step;
  int64_t reserve_bytes = 0;  ///< set aside from the budget
  double max_overhead = -1;   ///< bound on predicted extra time as a share of the step; < 0: none
  std::vector<std::string> allow_ops;  ///< unknown ops that may be replayed
  /// Globs of module paths, see matchesModule: what these modules make is kept, or recomputed,
  /// whatever it costs. Legality goes first.
  std::vector<std::string> keep_modules;
  std::vector<std::string> recompute_modules;
  /// Storages below this, or below a thousandth of the original's step peak where that is less (a
  /// small model's values are small), are kept.
  int64_t minimum_bytes = 65536;
  int64_t minimumFor(int64_t original_peak) const {
    return std::min(minimum_bytes, original_peak / 1000);
  }
  bool measure = true;       ///< measure the result and plan again while it is above the budget
  std::string profile_json;  ///< a profile to reuse instead of recording one
  /// A plan (SavedPlan) to reuse instead of making one, for the budget above; the model is
  /// rewritten even where nothing is to be gained. Empty: none.
  std::string plan_json;
  /// Two batch sizes to profile at instead of the inputs' own, for models too big to run there
  /// once: bytes and times are extrapolated, and nothing is measured. Empty: the inputs as they
  /// are.
  std::vector<int64_t> profile_batches;
  /// The device to plan for, where the step runs on the CPU (step.device) and another is meant:
  /// `cuda`, `cuda:0`. Bytes are rounded as there, times are what `roofline` says, and nothing is
  /// measured (passes/retarget.h). Empty: step.device.
  std::string plan_for;
  ir::Roofline roofline;
  const std::string& target() const { return plan_for.empty() ? step.device : plan_for; }
  int64_t batch_dim = 0;  ///< dimension of the inputs that profile_batches vary
  bool report = false;    ///< fill OptimizeResult::report in; plans for several budgets more
  /// Called with short lines of what is going on.
  std::function<void(const std::string&)> progress;
};

}  // namespace remat
