#include "tests/fuzz/trial.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <array>
#include <sstream>
#include <stdexcept>

#include "passes/remat.h"
#include "passes/training_step.h"
#include "runtime/runtime.h"
#include "runtime/statistics.h"
#include "tests/fuzz/attributes.h"
#include "tests/fuzz/fuzz_step.h"
#include "tests/runtime/support.h"

namespace remat::fuzz {
namespace {

using runtime::test::copyOf;

constexpr int kCalls = 4;
constexpr std::array<const char*, static_cast<size_t>(Variant::kCount)> kVariants = {
    "plain",   "retain-graph", "gradient",     "two-forwards",
    "dropped", "first-output", "second-order", "other-thread"};
constexpr std::array<const char*, static_cast<size_t>(Verdict::kCount)> kVerdicts = {
    "untrainable", "refused", "unchanged", "same", "different"};

torch::jit::Module throughArchive(const torch::jit::Module& module) {
  std::stringstream stream;
  module.save(stream);
  return torch::jit::load(stream);
}

std::string messageOf(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find("\nException raised from"));
}

/// Every call of one side. An exception ends it: `error` tells.
struct Side {
  std::vector<Step> steps;
  std::string error;
};

Side train(Model model, const Trial& trial) {
  const torch::jit::GraphOptimizerEnabledGuard execution(trial.optimized_execution);
  Side side;
  try {
    for (int call = 0; call < kCalls; ++call) {
      side.steps.push_back(takeStep(model, trial, call));
      update(model.module);
    }
    model.module.eval();
    side.steps.push_back(takeStep(model, trial, kCalls));
  } catch (const std::exception& error) {
    side.error = messageOf(error);
  }
  return side;
}

/// Where the trial's budget is out of reach, the lowest peak that is not.
OptimizeResult optimizeFor(const Trial& trial, OptimizeOptions options) {
  const torch::jit::Module source = copyOf(trial.module);
  const std::vector<c10::IValue> inputs{inputOf(trial, /*call=*/0)};
  try {
    return optimize(source, inputs, options);
  } catch (const BudgetError&) {
    if (options.budget.kind == Budget::Kind::kMinimum) throw;
  }
  options.budget.kind = Budget::Kind::kMinimum;
  return optimize(source, inputs, options);
}

Outcome outcome(Verdict verdict, std::string detail, int64_t replayed = 0,
                std::string rewritten = {}) {
  return {verdict, std::move(detail), replayed, std::move(rewritten)};
}

}  // namespace

const char* variantName(Variant variant) { return kVariants.at(static_cast<size_t>(variant)); }

Variant variantNamed(const std::string& name) {
  for (size_t i = 0; i < kVariants.size(); ++i) {
    if (name == kVariants.at(i)) return static_cast<Variant>(i);
  }
  throw std::invalid_argument("no variant is named " + name);
}

const char* verdictName(Verdict verdict) { return kVerdicts.at(static_cast<size_t>(verdict)); }

Trial trialOf(torch::jit::Module module, uint64_t seed) {
  Trial trial;
  trial.module = std::move(module);
  trial.seed = seed;
  // Bits of the seed in an order of their own, so that every combination comes up.
  const uint64_t bits = seed * 0x9E3779B97F4A7C15ULL >> 16U;
  constexpr uint64_t kBudgets = 8;
  const uint64_t budget = bits % kBudgets;
  constexpr uint64_t kFractions = 3;
  if (budget >= kFractions) {
    trial.budget.kind = Budget::Kind::kMinimum;
  } else {
    constexpr double kStep = 0.1;
    trial.budget.fraction = 0.9 - kStep * static_cast<double>(budget);
  }
  constexpr auto kVariantCount = static_cast<uint64_t>(Variant::kCount);
  trial.variant = static_cast<Variant>(bits / 8 % kVariantCount);
  trial.input_grad = bits / 64 % 2 == 0;
  trial.saved = bits / 128 % 4 == 0;
  trial.optimized_execution = bits / 512 % 4 == 0;
  return trial;
}

Outcome run(const Trial& given) {
  runtime::initialize();
  runtime::enableStatistics(true);
  Trial trial = given;
  try {
    // As users' models are: TorchScript's compiler leaves out what nothing reads.
    trial.module = throughArchive(given.module);
  } catch (const std::exception& error) {
    return outcome(Verdict::kUntrainable, messageOf(error));
  }
  const Side original = train(eagerly(copyOf(trial.module)), trial);
  if (!original.error.empty()) return outcome(Verdict::kUntrainable, original.error);
  if (trial.variant != Variant::kPlain) {
    Trial plain = trial;
    plain.variant = Variant::kPlain;
    const Side step = train(eagerly(copyOf(trial.module)), plain);
    if (!step.error.empty()) return outcome(Verdict::kUntrainable, step.error);
  }
  if (!finite(original.steps)) return outcome(Verdict::kUntrainable, "values overflow");

  OptimizeOptions options;
  options.budget = trial.budget;
  options.allow_ops = trial.allow_ops;
  torch::jit::Module optimized;
  std::string rewritten;
  try {
    OptimizeResult result = optimizeFor(trial, options);
    if (!result.changed) return outcome(Verdict::kUnchanged, result.reason_unchanged);
    rewritten = std::move(result.after_ir);
    optimized = trial.saved ? throughArchive(result.module) : result.module;
  } catch (const StepError& error) {
    return outcome(Verdict::kUntrainable, messageOf(error));
  } catch (const RematError& error) {
    return outcome(Verdict::kRefused, messageOf(error));
  } catch (const std::exception& error) {
    return outcome(Verdict::kDifferent, "optimize raised: " + messageOf(error));
  }
  runtime::takeStatistics();
  const Side actual = train(asScript(optimized), trial);
  const int64_t replayed = runtime::takeStatistics().replayed_nodes;
  // A write between forward and backward that only a replay sees is an error that says so.
  if (actual.error.find("(remat: ") != std::string::npos) {
    return outcome(Verdict::kRefused, actual.error, replayed, rewritten);
  }
  if (!actual.error.empty()) {
    return outcome(Verdict::kDifferent, "the optimised model raised: " + actual.error, replayed,
                   rewritten);
  }
  const std::string difference =
      firstDifference(original.steps, actual.steps, /*exact=*/!trial.optimized_execution);
  return outcome(difference.empty() ? Verdict::kSame : Verdict::kDifferent, difference, replayed,
                 rewritten);
}

}  // namespace remat::fuzz
