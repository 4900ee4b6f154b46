#include <c10/util/ScopeExit.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <set>

#include "ir/location.h"
#include "ir/outline.h"
#include "ir/region_order.h"
#include "ir/torch_error.h"
#include "ir/verifier.h"
#include "passes/check_options.h"
#include "passes/choices.h"
#include "passes/extrapolate.h"
#include "passes/frozen_layers.h"
#include "passes/graph_hash.h"
#include "passes/legality.h"
#include "passes/module_state.h"
#include "passes/prepare.h"
#include "passes/remat.h"
#include "passes/retarget.h"
#include "passes/training_step.h"
#include "passes/value_tensors.h"
#include "runtime/median_times.h"
#include "runtime/memory_statistics.h"
#include "runtime/recording.h"

namespace remat {
namespace {

constexpr int kRecordings = 3;
/// On a device the first step makes handles, picks kernels and fills the allocator's cache, and the
/// second shows how long the host takes. Launches vary more than the CPU's operators do.
constexpr int kDeviceWarmUps = 2;
constexpr int kDeviceRecordings = 5;
/// Of the host's time for a step: so much work is queued ahead of the next recorded one.
constexpr double kHeadStart = 1.2;
constexpr double kLongestHeadStart = 2;  ///< seconds

void say(const OptimizeOptions& options, const std::string& text) {
  if (options.progress) {
    options.progress(text);
  }
}

/// What `run` gives, a step of the model as it is: where it fails, that is why.
template <typename Run>
StepOutcome ownStep(const Run& run) {
  const auto refuse = [](const std::exception& error) -> StepOutcome {
    throw StepError("the model's own training step fails, before anything is changed: " +
                    ir::oneLine(error));
  };
  try {
    return run();
  } catch (const StepError&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    return refuse(error);
  } catch (const std::runtime_error& error) {  // TorchScript's interpreter
    return refuse(error);
  }
}

/// The original's step with TorchScript's optimisation off and on, and the better of the two: the
/// second step of each kind that counts, with optimisation on the fourth (its plans change until
/// the third).
int64_t measureOriginal(TrainingStep& step, ModuleState& state, const OptimizeOptions& options) {
  const auto measure = [&](bool optimized) {
    const torch::jit::GraphOptimizerEnabledGuard guard(optimized);
    const int steps = optimized ? 4 : 2;
    StepOutcome outcome;
    for (int i = 0; i < steps; ++i) {
      say(options, std::string("measuring the original, optimisation ") +
                       (optimized ? "on" : "off") + ", step " + std::to_string(i + 1) + " of " +
                       std::to_string(steps));
      const auto run = [&] { return step.run(options.method, false); };
      outcome = optimized ? run() : ownStep(run);
    }
    state.restore();
    return outcome.peak_bytes;
  };
  const int64_t plain = measure(/*optimized=*/false);
  try {
    return std::min(plain, measure(/*optimized=*/true));
  } catch (const StepError&) {
    throw;
  } catch (const std::exception&) {
    // TorchScript's own derivatives save other tensors: a model that writes some of these trains
    // only without them.
    state.restore();
    return plain;
  }
}

/// What the graph gets for a step's inputs.
using Arguments = std::function<std::vector<c10::IValue>(const std::vector<c10::IValue>& inputs)>;

/// `self` and the inputs, with the method's defaults.
Arguments methodArguments(const torch::jit::Module& module, const std::string& method) {
  return [&module, method](const std::vector<c10::IValue>& inputs) {
    std::vector<c10::IValue> arguments{module._ivalue()};
    arguments.insert(arguments.end(), inputs.begin(), inputs.end());
    module.get_method(method).function().getSchema().checkAndNormalizeInputs(arguments, {});
    return arguments;
  };
}

/// `trains`: a step was seen to run, so that an error here isn't the model's own.
ir::Profile record(const Arguments& arguments_for, torch::jit::Graph& graph, TrainingStep& step,
                   ModuleState& state, bool trains, const OptimizeOptions& options) {
  std::vector<ir::Profile> profiles;
  const c10::Device device(options.step.device);
  const int warm_ups = device.is_cpu() ? 0 : kDeviceWarmUps;
  const int steps = warm_ups + (device.is_cpu() ? kRecordings : kDeviceRecordings);
  double head_start = 0;
  for (int i = 0; i < steps; ++i) {
    say(options, "recording step " + std::to_string(i + 1) + " of " + std::to_string(steps));
    runtime::Recording recording(graph, device);
    const auto forward = [&](const std::vector<c10::IValue>& inputs) {
      std::vector<c10::IValue> arguments = arguments_for(inputs);
      recording.start(head_start);
      std::vector<c10::IValue> outputs = recording.forward(std::move(arguments));
      return outputs.size() == 1 ? std::move(outputs[0])
                                 : c10::ivalue::Tuple::create(std::move(outputs));
    };
    const auto run = [&] { return step.run(forward, false); };
    const StepOutcome outcome = trains ? run() : ownStep(run);
    ir::Profile profile = recording.finish();
    state.restore();
    if (i < warm_ups) {
      head_start = std::min(kHeadStart * outcome.seconds, kLongestHeadStart);
      continue;
    }
    profile.peak_bytes = outcome.peak_bytes;
    if (device.is_cpu()) profile.step_seconds = outcome.seconds;
    profiles.push_back(std::move(profile));
  }
  return runtime::withMedianTimes(std::move(profiles));
}

/// A profile foretells the step that it was recorded for, and no other.
void checkSameStep(const ir::Profile& profile, const std::vector<c10::IValue>& inputs,
                   const OptimizeOptions& options) {
  std::string differences;
  const auto compare = [&](const char* what, const std::string& recorded, const std::string& here) {
    if (recorded == here) return;
    differences += (differences.empty() ? "" : ", ") + std::string(what) + " " +
                   (recorded.empty() ? "that is not known" : recorded) + " and not " + here;
  };
  compare("inputs", profile.inputs, describeInputs(inputs));
  compare("loss", profile.loss, lossName(options.step));
  compare("device", profile.device, options.target());
  if (!differences.empty()) {
    throw RematError("the profile was recorded for " + differences +
                     "; give what it was recorded for, or record it again");
  }
}

void checkAllowedOps(const OptimizeOptions& options) {
  for (const std::string& op : options.allow_ops) {
    if (torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(op)).empty()) {
      throw RematError("no operator is registered under the name " + op +
                       ", which was to be allowed; correct it, or load the library that "
                       "registers it");
    }
  }
}

void checkChoices(torch::jit::Graph& graph, const OptimizeOptions& options) {
  std::set<std::string> paths;
  for (const ir::OrderedNode& ordered : ir::regionOrder(graph).nodes) {
    paths.insert(ir::locate(*ordered.node).module_path);
  }
  if (const std::string wrong = wrongChoice(paths, options); !wrong.empty()) {
    throw ChoiceError(wrong);
  }
}

ir::Profile reuse(const std::string& json, const std::string& graph_hash,
                  const OptimizeOptions& options) {
  ir::Profile profile;
  try {
    profile = ir::profileFromJson(json);
  } catch (const std::runtime_error& error) {
    throw RematError(std::string("the profile can't be read: ") + error.what());
  }
  if (profile.graph_hash != graph_hash) {
    throw RematError("the profile was recorded for another model or method: record it again");
  }
  const bool elsewhere = !options.plan_for.empty() && profile.device == options.step.device;
  return elsewhere ? retarget(profile, options.plan_for, options.roofline) : profile;
}

/// A recording of the analysis's graph. `baseline`: the original's peak, bytes; 0: that of the
/// recorded step counts.
ir::Profile profileGraph(const Analysis& analysis, const Arguments& arguments,
                         const std::vector<c10::IValue>& inputs, int64_t baseline,
                         const OptimizeOptions& options) {
  TrainingStep step(analysis.prepared, inputs, options.step);
  ModuleState state(analysis.prepared);
  const auto restore = c10::make_scope_exit([&] { state.restore(); });  // a step may fail
  ir::Profile profile =
      record(arguments, *analysis.graph, step, state, /*trains=*/baseline > 0, options);
  profile.graph_hash = graphHash(*analysis.graph);
  profile.device = options.step.device;
  profile.inputs = describeInputs(inputs);
  profile.loss = lossName(options.step);
  profile.baseline_peak_bytes = baseline > 0 ? baseline : profile.peak_bytes;
  profile.rounding = allocationRounding(profile.device);
  return options.plan_for.empty() ? profile : retarget(profile, options.plan_for, options.roofline);
}

/// Baseline and recording with the given inputs. The baseline is of a copy: TorchScript's executors
/// specialise on the first sizes that they see, and take more memory for others.
ir::Profile profileInputs(const Analysis& analysis, const std::vector<c10::IValue>& inputs,
                          const OptimizeOptions& options) {
  const torch::jit::Module original = ir::cloneForRewrite(analysis.prepared);
  TrainingStep original_step(original, inputs, options.step);
  ModuleState original_state(original);
  const auto restore = c10::make_scope_exit([&] { original_state.restore(); });  // as above
  const int64_t baseline = measureOriginal(original_step, original_state, options);
  return profileGraph(analysis, methodArguments(analysis.prepared, options.method), inputs,
                      baseline, options);
}

/// What the inputs' own batch would show, from two smaller ones.
ir::Profile profileTwoBatches(Analysis& analysis, const std::vector<c10::IValue>& inputs,
                              const OptimizeOptions& options) {
  if (options.profile_batches.size() != 2) {
    throw RematError("two batch sizes are needed to extrapolate from, " +
                     std::to_string(options.profile_batches.size()) + " given");
  }
  const int64_t batch = batchSize(inputs, options.batch_dim);
  std::vector<BatchProfile> profiles;
  for (const int64_t size : options.profile_batches) {
    if (size < 1 || size > batch) {
      throw RematError("batch " + std::to_string(size) +
                       " to profile at is not between 1 and the inputs' batch of " +
                       std::to_string(batch));
    }
    say(options, "profiling at batch " + std::to_string(size));
    profiles.push_back(
        {size,
         profileInputs(analysis, firstOfBatch(inputs, options.batch_dim, batch, size), options)});
  }
  ir::Profile profile = extrapolate(profiles[0], profiles[1], batch);
  profile.inputs = describeInputs(inputs);
  analysis.recorded = std::move(profiles);
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

/// What the rewriter and the runtime keep whatever the plan says (ir/verifier.h) is nothing to plan
/// with.
void refuseWhatIsKeptAnyway(Analysis& analysis) {
  for (const int32_t value : ir::valuesToKeepAnyway(*analysis.graph)) {
    const int32_t producer = analysis.profile.values[value].producer;
    if (producer >= 0) {
      analysis.replayable[producer] = 0;
    }
  }
}

/// One remark on all storages that are too small to be worth recomputing.
void addSmallStorages(Analysis& analysis) {
  const ir::Profile& profile = analysis.profile;
  std::vector<char> counted(profile.storages.size(), 0);
  int64_t count = 0;
  int64_t bytes = 0;
  for (const ir::SlotProfile& slot : profile.slots) {
    if (slot.value < 0 || slot.storage < 0 || counted[slot.storage] != 0) {
      continue;
    }
    counted[slot.storage] = 1;
    const ir::StorageProfile& storage = profile.storages[slot.storage];
    const int32_t producer = profile.values[slot.value].producer;
    if (storage.role == ir::StorageRole::kValue && storage.bytes < analysis.minimum_bytes &&
        producer >= 0 && analysis.replayable[producer] != 0) {
      ++count;
      bytes += storage.bytes;
    }
  }
  if (count > 0) {
    ir::Remark remark{ir::Reason::kBelowMinimumSaving, "", "", "", "", bytes};
    remark.explanation = std::to_string(count) +
                         (count == 1 ? " saved value is" : " saved values are") + " smaller than " +
                         ir::formatBytes(analysis.minimum_bytes) + (count == 1 ? "" : " each");
    analysis.remarks.push_back(std::move(remark));
  }
}

/// What follows from graph and profile.
void judge(Analysis& analysis, const std::vector<c10::IValue>& inputs,
           const OptimizeOptions& options) {
  analysis.original_peak = analysis.profile.baseline_peak_bytes;
  analysis.minimum_bytes = options.minimumFor(analysis.original_peak);
  say(options, "judging what may be replayed");
  Legality legality = analyzeLegality(analysis.graph, {options.allow_ops, &analysis.prepared});
  const std::vector<char> frozen = frozenNodes(*analysis.graph, analysis.prepared, inputs);
  for (const ir::NodeProfile& node : analysis.profile.nodes) {
    const bool once = frozen.at(node.program_index) != 0;
    analysis.replayable.push_back(legality.isReplayable(node.program_index) && !once ? 1 : 0);
  }
  refuseWhatIsKeptAnyway(analysis);
  analysis.remarks = legality.remarks(analysis.profile);
  addSmallStorages(analysis);
}

}  // namespace

Analysis analyzeGraph(const std::shared_ptr<torch::jit::Graph>& prepared,
                      const torch::jit::Module& module, bool takes_self,
                      const std::vector<c10::IValue>& inputs, const OptimizeOptions& options) {
  checkOptions(options);
  checkAllowedOps(options);
  runtime::installMemoryStatistics();
  Analysis analysis;
  analysis.prepared = module;
  analysis.graph = prepared;
  checkChoices(*analysis.graph, options);
  const Arguments arguments = [&](const std::vector<c10::IValue>& given) {
    std::vector<c10::IValue> all;
    if (takes_self) all.emplace_back(module._ivalue());
    all.insert(all.end(), given.begin(), given.end());
    return all;
  };
  analysis.profile = options.profile_json.empty()
                         ? profileGraph(analysis, arguments, inputs, /*baseline=*/0, options)
                         : reuse(options.profile_json, graphHash(*analysis.graph), options);
  judge(analysis, inputs, options);
  return analysis;
}

Analysis analyze(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                 const OptimizeOptions& options) {
  if (!module.find_method(options.method)) {
    throw RematError("the model has no method " + options.method);
  }
  checkOptions(options);
  checkAllowedOps(options);
  runtime::installMemoryStatistics();
  Analysis analysis;
  analysis.prepared = unoptimized(module, options.method);
  say(options, "preparing the graph");
  analysis.graph =
      prepareGraph(analysis.prepared, options.method, c10::Device(options.target()).is_cpu());
  checkChoices(*analysis.graph, options);
  const std::string hash = graphHash(*analysis.graph);
  analysis.profile = !options.profile_json.empty() ? reuse(options.profile_json, hash, options)
                     : !options.profile_batches.empty()
                         ? profileTwoBatches(analysis, inputs, options)
                         : profileInputs(analysis, inputs, options);
  if (!options.profile_json.empty()) checkSameStep(analysis.profile, inputs, options);
  judge(analysis, inputs, options);
  return analysis;
}

}  // namespace remat
