#include "tools/verification.h"

#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "passes/module_state.h"
#include "passes/training_step.h"
#include "runtime/statistics.h"

namespace remat::tools {
namespace {

using Progress = std::function<void(const std::string&)>;

/// A model that is always stepped with TorchScript's optimisation on, or always off.
class Runner {
 public:
  Runner(torch::jit::Module module, std::string method, bool optimized_execution,
         const std::vector<c10::IValue>& inputs, const StepOptions& options)
      : method_(std::move(method)),
        optimized_execution_(optimized_execution),
        state_(module),
        step_(std::move(module), inputs, options) {}

  StepOutcome run(bool keep_results) {
    const torch::jit::GraphOptimizerEnabledGuard execution(optimized_execution_);
    return step_.run(method_, keep_results);
  }

  void restore() { state_.restore(); }
  bool optimizedExecution() const { return optimized_execution_; }

 private:
  std::string method_;
  bool optimized_execution_;
  ModuleState state_;
  TrainingStep step_;
};

/// TorchScript's optimisation changes what the original draws (its derivative of dropout takes
/// numbers for a probability of 0 too), so the draws to come are always compared with what they are
/// without it: `draws`, by step, filled by the first comparison.
Parity compareSides(Runner& original, Runner& optimized, const Progress& progress,
                    std::vector<at::Tensor>& draws) {
  constexpr int kSteps = 4;
  original.restore();
  optimized.restore();
  Parity parity;
  for (int i = 1; i <= kSteps; ++i) {
    progress(std::string("comparing, TorchScript's optimisation ") +
             (original.optimizedExecution() ? "on" : "off") + ", step " + std::to_string(i) +
             " of " + std::to_string(kSteps));
    StepOutcome expected = original.run(/*keep_results=*/true);
    if (!original.optimizedExecution()) draws.push_back(expected.next_draw);
    expected.next_draw = draws.at(i - 1);
    compareSteps(expected, optimized.run(/*keep_results=*/true), parity);
  }
  original.restore();
  optimized.restore();
  return parity;
}

/// Every node is timed here, so these steps are not the ones whose time is reported. The fastest
/// forward and the fastest replay: another program's work in between slows one of the two.
double measureShare(Runner& optimized, int rounds) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double forward = kNever;
  double replay = kNever;
  runtime::enableStatistics(true);
  for (int i = 0; i < rounds; ++i) {
    runtime::takeStatistics();
    optimized.run(/*keep_results=*/false);
    const runtime::StepStatistics statistics = runtime::takeStatistics();
    forward = std::min(forward, statistics.forward_seconds);
    replay = std::min(replay, statistics.replay_seconds);
  }
  runtime::enableStatistics(false);
  return forward > 0 ? replay / forward : 0;
}

void measureOriginal(Runner& original, Verification& result) {
  const StepOutcome step = original.run(/*keep_results=*/false);
  result.original_peak = std::min(result.original_peak, step.peak_bytes);
  result.original_seconds = std::min(result.original_seconds, step.seconds);
}

void measureOptimized(Runner& optimized, Verification& result) {
  const StepOutcome step = optimized.run(/*keep_results=*/false);
  result.optimized_peak = std::max(result.optimized_peak, step.peak_bytes);
  result.optimized_seconds = std::min(result.optimized_seconds, step.seconds);
}

}  // namespace

Verification verifySides(const Side& original, const Side& optimized,
                         const std::vector<c10::IValue>& inputs, const StepOptions& step,
                         int rounds, const Progress& progress) {
  const auto runner = [&](const Side& side, bool optimized_execution) {
    return Runner(optimized_execution ? side.optimized_execution : side.eager_execution,
                  side.method, optimized_execution, inputs, step);
  };
  Runner eager_original = runner(original, /*optimized_execution=*/false);
  Runner eager_optimized = runner(optimized, /*optimized_execution=*/false);
  Runner original_runner = runner(original, /*optimized_execution=*/true);
  Runner optimized_runner = runner(optimized, /*optimized_execution=*/true);
  Verification result;
  std::vector<at::Tensor> draws;
  result.parity = compareSides(eager_original, eager_optimized, progress, draws);
  result.optimized_parity = compareSides(original_runner, optimized_runner, progress, draws);
  for (int i = 1; i <= rounds; ++i) {
    progress("measuring, round " + std::to_string(i) + " of " + std::to_string(rounds));
    measureOriginal(eager_original, result);
    measureOptimized(optimized_runner, result);
    measureOriginal(original_runner, result);
  }
  result.recompute_share = measureShare(optimized_runner, rounds);
  return result;
}

}  // namespace remat::tools
