#include "tools/verification.h"

#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <limits>

#include "passes/module_state.h"
#include "passes/training_step.h"
#include "runtime/statistics.h"

namespace remat::tools {
namespace {

using Progress = std::function<void(const std::string&)>;

/// One model, stepped with TorchScript's optimisation on or off.
class Runner {
 public:
  Runner(const Side& side, const std::vector<c10::IValue>& inputs, const StepOptions& options)
      : method_(side.method), state_(side.module), step_(side.module, inputs, options) {}

  StepOutcome run(bool optimized_execution, bool keep_results) {
    const torch::jit::GraphOptimizerEnabledGuard execution(optimized_execution);
    return step_.run(method_, keep_results);
  }

  void restore() { state_.restore(); }

 private:
  std::string method_;
  ModuleState state_;
  TrainingStep step_;
};

Parity compareSides(Runner& original, Runner& optimized, bool optimized_execution,
                    const Progress& progress) {
  constexpr int kSteps = 4;
  original.restore();
  optimized.restore();
  Parity parity;
  for (int i = 1; i <= kSteps; ++i) {
    progress(std::string("comparing, TorchScript's optimisation ") +
             (optimized_execution ? "on" : "off") + ", step " + std::to_string(i) + " of " +
             std::to_string(kSteps));
    const StepOutcome expected = original.run(optimized_execution, /*keep_results=*/true);
    compareSteps(expected, optimized.run(optimized_execution, /*keep_results=*/true), parity);
  }
  return parity;
}

/// Every node is timed here, so these steps are not the ones whose time is reported.
double measureShare(Runner& optimized, int rounds) {
  runtime::enableStatistics(true);
  double best_seconds = std::numeric_limits<double>::infinity();
  double share = 0;
  for (int i = 0; i < rounds; ++i) {
    runtime::takeStatistics();
    const double seconds =
        optimized.run(/*optimized_execution=*/true, /*keep_results=*/false).seconds;
    const runtime::StepStatistics statistics = runtime::takeStatistics();
    if (seconds >= best_seconds || statistics.forward_seconds <= 0) continue;
    best_seconds = seconds;
    share = statistics.replay_seconds / statistics.forward_seconds;
  }
  runtime::enableStatistics(false);
  return share;
}

void measureSteps(Runner& original, Runner& optimized, int rounds, const Progress& progress,
                  Verification& result) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  result.original_peak = std::numeric_limits<int64_t>::max();
  result.original_seconds = kNever;
  result.optimized_seconds = kNever;
  for (int i = 1; i <= rounds; ++i) {
    progress("measuring, round " + std::to_string(i) + " of " + std::to_string(rounds));
    for (const bool optimized_execution : {false, true}) {
      const StepOutcome step = original.run(optimized_execution, /*keep_results=*/false);
      result.original_peak = std::min(result.original_peak, step.peak_bytes);
      result.original_seconds = std::min(result.original_seconds, step.seconds);
    }
    const StepOutcome step = optimized.run(/*optimized_execution=*/true, /*keep_results=*/false);
    result.optimized_peak = std::max(result.optimized_peak, step.peak_bytes);
    result.optimized_seconds = std::min(result.optimized_seconds, step.seconds);
  }
}

}  // namespace

Verification verifySides(const Side& original, const Side& optimized,
                         const std::vector<c10::IValue>& inputs, const StepOptions& step,
                         int rounds, const Progress& progress) {
  Runner left(original, inputs, step);
  Runner right(optimized, inputs, step);
  Verification result;
  result.parity = compareSides(left, right, /*optimized_execution=*/false, progress);
  result.optimized_parity = compareSides(left, right, /*optimized_execution=*/true, progress);
  measureSteps(left, right, rounds, progress, result);
  result.recompute_share = measureShare(right, rounds);
  left.restore();
  right.restore();
  return result;
}

}  // namespace remat::tools
