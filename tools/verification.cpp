#include "tools/verification.h"

#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "passes/module_state.h"
#include "passes/training_step.h"
#include "runtime/statistics.h"
#include "tools/errors.h"
#include "tools/first_difference.h"

namespace remat::tools {
namespace {

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

/// The original's own error with TorchScript's optimisation on.
struct OriginalFails {
  std::string reason;
};

StepOutcome runOriginal(Runner& original) {
  if (!original.optimizedExecution()) return original.run(/*keep_results=*/true);
  try {
    return original.run(/*keep_results=*/true);
  } catch (const StepError&) {
    throw;
  } catch (const std::exception& error) {
    throw OriginalFails{oneLine(error)};
  }
}

void showStep(const ShowProgress& progress, const Runner& runner, int step, int steps) {
  progress(std::string("comparing, TorchScript's optimisation ") +
           (runner.optimizedExecution() ? "on" : "off") + ", step " + std::to_string(step) +
           " of " + std::to_string(steps));
}

/// TorchScript's optimisation changes what the original draws (its derivative of dropout takes
/// numbers for a probability of 0 too), so the draws to come are always compared with what they are
/// without it: `draws`, by step, filled by the first comparison.
Parity compareSides(Runner& original, Runner& optimized, const Comparing& comparing,
                    const ShowProgress& progress, std::vector<at::Tensor>& draws) {
  original.restore();
  optimized.restore();
  Parity parity;
  for (int i = 1; i <= comparing.steps; ++i) {
    showStep(progress, original, i, comparing.steps);
    StepOutcome expected = runOriginal(original);
    if (!original.optimizedExecution()) draws.push_back(expected.next_draw);
    expected.next_draw = draws.at(i - 1);
    compareSteps(expected, optimized.run(/*keep_results=*/true),
                 comparing.tolerance.value_or(kDefaultTolerance), parity);
  }
  original.restore();
  optimized.restore();
  return parity;
}

/// How a model's steps compare with the same steps run a second time.
Parity compareWithItself(Runner& runner, const Comparing& comparing, const ShowProgress& progress) {
  progress("running the original's steps again: are its kernels deterministic?");
  std::vector<StepOutcome> outcomes;
  Parity parity;
  for (int run = 0; run < 2; ++run) {
    runner.restore();
    for (int i = 0; i < comparing.steps; ++i) {
      StepOutcome outcome = runner.run(/*keep_results=*/true);
      if (run == 0) {
        outcomes.push_back(std::move(outcome));
      } else {
        compareSteps(outcomes.at(i), outcome, comparing.tolerance.value_or(kDefaultTolerance),
                     parity);
      }
    }
  }
  runner.restore();
  return parity;
}

bool trains(Runner& runner, int steps) {
  try {
    for (int i = 0; i < steps; ++i) runner.run(/*keep_results=*/false);
    return true;
  } catch (const StepError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

Verdict judge(Runner& original, Runner& optimized, const std::function<std::string()>& locate,
              const Comparing& comparing, const ShowProgress& progress,
              std::vector<at::Tensor>& draws) {
  Verdict verdict;
  verdict.parity = compareSides(original, optimized, comparing, progress, draws);
  const Match worst = verdict.parity.worst();
  if (worst == Match::kBitwise) return verdict;
  const Parity itself = compareWithItself(original, comparing, progress);
  verdict.deterministic = itself.worst() == Match::kBitwise;
  if (itself.worst() == Match::kDifferent) verdict.own_difference = itself.max_difference;
  const bool tolerant = comparing.tolerance.has_value() || !verdict.deterministic;
  verdict.same = worst == Match::kClose && tolerant;
  progress("looking for the first difference");
  verdict.first_difference = locate();
  return verdict;
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

Verdict compareModules(const torch::jit::Module& original, const torch::jit::Module& optimized,
                       const std::string& method, const std::vector<c10::IValue>& inputs,
                       const StepOptions& step, const Comparing& comparing,
                       const ShowProgress& progress) {
  Runner left(original, method, /*optimized_execution=*/false, inputs, step);
  Runner right(optimized, method, /*optimized_execution=*/false, inputs, step);
  std::vector<at::Tensor> draws;
  const auto locate = [&] {
    return firstDifference(original, optimized, method, inputs, step, comparing.steps);
  };
  return judge(left, right, locate, comparing, progress, draws);
}

Verification verifySides(const Side& original, const Side& optimized,
                         const std::vector<c10::IValue>& inputs, const StepOptions& step,
                         const Comparing& comparing, int rounds, const ShowProgress& progress) {
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
  const auto locate = [&] {
    return firstDifference(original.eager_execution, optimized.eager_execution, original.method,
                           inputs, step, comparing.steps);
  };
  result.verdict = judge(eager_original, eager_optimized, locate, comparing, progress, draws);
  Runner* measured = &optimized_runner;
  try {
    result.optimized_parity =
        compareSides(original_runner, optimized_runner, comparing, progress, draws);
  } catch (const OriginalFails& failure) {
    result.original_error = failure.reason;
    if (!trains(optimized_runner, comparing.steps)) measured = &eager_optimized;
  }
  for (int i = 1; i <= rounds; ++i) {
    progress("measuring, round " + std::to_string(i) + " of " + std::to_string(rounds));
    measureOriginal(eager_original, result);
    measureOptimized(*measured, result);
    if (result.original_error.empty()) measureOriginal(original_runner, result);
  }
  result.recompute_share = measureShare(*measured, rounds);
  return result;
}

}  // namespace remat::tools
