#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <sstream>

#include "ir/outline.h"
#include "passes/graph_hash.h"
#include "passes/legality.h"
#include "passes/module_state.h"
#include "passes/prepare.h"
#include "passes/remat.h"
#include "passes/training_step.h"
#include "runtime/memory_statistics.h"
#include "runtime/recording.h"

namespace remat {
namespace {

constexpr int kRecordings = 3;

void say(const OptimizeOptions& options, const std::string& text) {
  if (options.progress) {
    options.progress(text);
  }
}

struct Baseline {
  int64_t peak = 0;
  double seconds = 0;
};

/// The original's step with TorchScript's optimisation off and on, and the better of the two: the
/// second step of each kind that counts, with optimisation on the fourth (its plans change until
/// the third).
Baseline measureOriginal(TrainingStep& step, ModuleState& state, const OptimizeOptions& options) {
  Baseline best;
  for (const bool optimized : {false, true}) {
    const torch::jit::GraphOptimizerEnabledGuard guard(optimized);
    const int steps = optimized ? 4 : 2;
    StepOutcome outcome;
    for (int i = 0; i < steps; ++i) {
      say(options, std::string("measuring the original, optimisation ") +
                       (optimized ? "on" : "off") + ", step " + std::to_string(i + 1) + " of " +
                       std::to_string(steps));
      outcome = step.run(options.method, false);
    }
    state.restore();
    best.peak = best.peak == 0 ? outcome.peak_bytes : std::min(best.peak, outcome.peak_bytes);
    best.seconds = best.seconds == 0 ? outcome.seconds : std::min(best.seconds, outcome.seconds);
  }
  return best;
}

ir::Profile record(const torch::jit::Module& module, torch::jit::Graph& graph, TrainingStep& step,
                   ModuleState& state, const OptimizeOptions& options) {
  ir::Profile profile;
  for (int i = 0; i < kRecordings; ++i) {
    say(options, "recording step " + std::to_string(i + 1) + " of " + std::to_string(kRecordings));
    runtime::Recording recording(graph);
    const StepOutcome outcome = step.run(
        [&](const std::vector<c10::IValue>& inputs) {
          std::vector<c10::IValue> arguments{module._ivalue()};
          arguments.insert(arguments.end(), inputs.begin(), inputs.end());
          module.get_method(options.method)
              .function()
              .getSchema()
              .checkAndNormalizeInputs(arguments, {});
          recording.start();
          return recording.forward(std::move(arguments)).at(0);
        },
        false);
    ir::Profile next = recording.finish();
    next.peak_bytes = outcome.peak_bytes;
    next.step_seconds = outcome.seconds;
    if (i > 0) {
      next.step_seconds = std::min(next.step_seconds, profile.step_seconds);
      runtime::takeShorterTimes(next, profile);
    }
    profile = std::move(next);
    state.restore();
  }
  return profile;
}

std::string describe(const std::vector<c10::IValue>& inputs) {
  std::ostringstream text;
  for (const c10::IValue& input : inputs) {
    text << (text.tellp() > 0 ? ", " : "");
    if (input.isTensor() && input.toTensor().defined()) {
      text << c10::toString(input.toTensor().scalar_type()) << input.toTensor().sizes();
    } else {
      text << input.tagKind();
    }
  }
  return text.str();
}

ir::Profile reuse(const std::string& json, const std::string& graph_hash) {
  ir::Profile profile;
  try {
    profile = ir::profileFromJson(json);
  } catch (const std::runtime_error& error) {
    throw RematError(std::string("the profile can't be read: ") + error.what());
  }
  if (profile.graph_hash != graph_hash) {
    throw RematError("the profile was recorded for another model or method: record it again");
  }
  return profile;
}

/// The module before any optimisation by Remat.
torch::jit::Module unoptimized(const torch::jit::Module& module, const std::string& method) {
  if (!ir::isOptimized(module, method)) {
    return module;
  }
  torch::jit::Module original = ir::cloneForRewrite(module);
  ir::strip(original, method);
  return original;
}

}  // namespace

Analysis analyze(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                 const OptimizeOptions& options) {
  if (!module.find_method(options.method)) {
    throw RematError("the model has no method " + options.method);
  }
  runtime::installMemoryStatistics();
  Analysis analysis;
  analysis.prepared = unoptimized(module, options.method);
  say(options, "preparing the graph");
  analysis.graph = prepareGraph(analysis.prepared, options.method);
  const std::string hash = graphHash(*analysis.graph);
  if (!options.profile_json.empty()) {
    analysis.profile = reuse(options.profile_json, hash);
    analysis.original_peak = analysis.profile.baseline_peak_bytes;
  } else {
    TrainingStep step(analysis.prepared, inputs, options.step);
    ModuleState state(analysis.prepared);
    const Baseline baseline = measureOriginal(step, state, options);
    analysis.profile = record(analysis.prepared, *analysis.graph, step, state, options);
    analysis.profile.graph_hash = hash;
    analysis.profile.device = options.step.device;
    analysis.profile.inputs = describe(inputs);
    analysis.profile.baseline_peak_bytes = baseline.peak;
    analysis.original_peak = baseline.peak;
    analysis.original_step_seconds = baseline.seconds;
  }
  say(options, "judging what may be replayed");
  Legality legality = analyzeLegality(analysis.graph, {options.allow_ops, &analysis.prepared});
  for (const ir::NodeProfile& node : analysis.profile.nodes) {
    analysis.replayable.push_back(legality.isReplayable(node.program_index) ? 1 : 0);
  }
  analysis.remarks = legality.remarks(analysis.profile);
  return analysis;
}

}  // namespace remat
