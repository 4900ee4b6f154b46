#include "passes/remat.h"

#include <c10/util/ScopeExit.h>
#include <llvm/Support/FormatVariadic.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "ir/dump.h"
#include "ir/outline.h"
#include "passes/blockers.h"
#include "passes/check_options.h"
#include "passes/choices.h"
#include "passes/evaluated_plan.h"
#include "passes/graph_hash.h"
#include "passes/internals.h"
#include "passes/marks.h"
#include "passes/module_state.h"
#include "passes/notes.h"
#include "passes/planner.h"
#include "passes/rewriter.h"
#include "passes/simulator.h"
#include "passes/training_step.h"
#include "runtime/runtime.h"

namespace remat {
namespace {

constexpr int kAttempts = 3;
constexpr int kOverheadSteps = 5;

int64_t budgetBytes(const Budget& budget, const Analysis& analysis,
                    const OptimizeOptions& options) {
  const int64_t bytes =
      budget.kind == Budget::Kind::kFraction
          ? static_cast<int64_t>(budget.fraction * static_cast<double>(analysis.original_peak))
          : budget.bytes;
  return std::max<int64_t>(bytes - options.reserve_bytes, 0);
}

/// Of the original's step. Not less than what its nodes take: that is the median of several steps,
/// and the step itself may have been a lucky one.
double stepSeconds(const ir::Profile& profile) {
  double nodes = profile.forwardSeconds();
  for (const ir::BackwardStep& step : profile.backward) nodes += step.seconds;
  return std::max(profile.step_seconds, nodes);
}

/// The plan with the lowest peak among those whose extra time stays within the bound: peaks between
/// the minimum and everything kept are halved a few times; what the searches saw on their way
/// counts.
ir::Plan planForOverhead(Planner& planner, const Analysis& analysis, double max_overhead) {
  const double bound = max_overhead * stepSeconds(analysis.profile);
  const ir::Plan lowest = planner.minimum();
  double seconds = lowest.planning_seconds;
  int64_t low = lowest.predicted_peak;
  int64_t high = std::max(analysis.original_peak, analysis.profile.peak_bytes);
  for (int i = 0; i < kOverheadSteps && high - low > analysis.original_peak / 1000; ++i) {
    const int64_t middle = low + (high - low) / 2;
    const ir::Plan plan = planner.plan(middle);
    seconds += plan.planning_seconds;
    (plan.recompute_seconds <= bound ? high : low) = middle;
  }
  ir::Plan best = planner.lowestWithin(bound);
  best.planning_seconds = seconds;
  return best;
}

/// The plan with the lowest peak, searched again as that budget: the fastest known there, and its
/// bound.
ir::Plan minimumPlan(Planner& planner) {
  const ir::Plan lowest = planner.minimum();
  ir::Plan plan = planner.plan(lowest.predicted_peak);
  plan.planning_seconds += lowest.planning_seconds;
  return plan;
}

/// Of one forward: where a plan may recompute this much more than the least, it is searched on.
constexpr double kWideGap = 0.03;

/// What planCurve names as the lowest reachable peak can be asked for: where a plan for these bytes
/// isn't found, the search goes as it goes there. What it finds on its way to the lowest peak
/// counts as well, where the first search left much room.
ir::Plan planForBytes(Planner& planner, const PlanningInput& input, int64_t bytes) {
  ir::Plan plan = planner.plan(bytes);
  if (plan.predicted_peak <= bytes && plan.gap() <= kWideGap) return plan;
  if (plan.predicted_peak <= bytes) {
    const double seconds = plan.planning_seconds + minimumPlan(planner).planning_seconds;
    plan = planner.known(bytes);
    plan.planning_seconds = seconds;
    return plan;
  }
  Planner anew(input);
  ir::Plan lowest = minimumPlan(anew);
  if (lowest.predicted_peak <= bytes) lowest = anew.plan(bytes);
  lowest.planning_seconds += plan.planning_seconds;
  return lowest.predicted_peak < plan.predicted_peak ? lowest : plan;
}

ir::Plan choosePlan(Planner& planner, const PlanningInput& input, const Budget& budget,
                    const Analysis& analysis, const OptimizeOptions& options) {
  if (options.max_overhead >= 0) {
    return planForOverhead(planner, analysis, options.max_overhead);
  }
  if (budget.kind == Budget::Kind::kMinimum) {
    return minimumPlan(planner);
  }
  return planForBytes(planner, input, budgetBytes(budget, analysis, options));
}

/// Why the model is to stay as it is; empty if a rewrite is called for.
std::string reasonToStay(const Analysis& analysis, const OptimizeOptions& options,
                         const ir::Plan& plan) {
  const bool bounded = options.budget.kind != Budget::Kind::kMinimum && options.max_overhead < 0;
  if (bounded && options.recompute_modules.empty() &&
      analysis.original_peak <= budgetBytes(options.budget, analysis, options)) {
    return "the model's step peak of " + ir::formatBytes(analysis.original_peak) +
           " is within the budget as it is";
  }
  if (!bounded && plan.predicted_peak + analysis.minimum_bytes > analysis.original_peak) {
    const std::string limit =
        options.max_overhead < 0
            ? ""
            : llvm::formatv(" within {0:P1} of extra time", options.max_overhead).str();
    return "no plan" + limit + " lowers the step's peak of " +
           ir::formatBytes(analysis.original_peak) + " by " +
           ir::formatBytes(analysis.minimum_bytes) + " or more";
  }
  return "";
}

ir::Plan reusedPlan(const PlanningInput& input, const OptimizeOptions& options, int64_t asked,
                    int64_t minimum_bytes) {
  ir::Plan plan;
  try {
    const SavedPlan saved = savedPlanFromJson(options.plan_json);
    if (saved.graph_hash != input.profile.graph_hash) {
      throw RematError("the plan was made for another model or method; make one for this one");
    }
    if (saved.method != options.method) {
      throw RematError("the plan was made for the method " + saved.method + "; make one for " +
                       options.method);
    }
    plan = planOf(saved, input);
  } catch (const RematError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw RematError(std::string("the plan can't be used: ") + error.what());
  }
  if (asked > 0 && plan.predicted_peak > asked) {
    throw BudgetError(
        "the plan's peak is " + ir::formatBytes(plan.predicted_peak, ir::Rounding::kUp) +
            " with the present profile, predicted, and above its budget of " +
            ir::formatBytes(asked, ir::Rounding::kDown) + "; make one for these inputs",
        plan.predicted_peak);
  }
  proveBounds(input, plan);
  // What the planner would not have asked about is not counted.
  PlanningInput usual = input;
  usual.minimum_bytes = minimum_bytes;
  Simulator simulator(usual);
  plan.kept = evaluatedPlan(simulator, plan.keep, /*forward_seconds=*/0).kept;
  return plan;
}

struct Rewritten {
  torch::jit::Module module;
  std::shared_ptr<torch::jit::Graph> region;
};

Rewritten rewrite(const Analysis& analysis, const PlanningInput& input, const ir::Plan& plan,
                  const std::string& method) {
  Rewritten result;
  result.region = rewriteRegion(analysis.graph, {marksOf(input, plan), droppedValues(input, plan),
                                                 regeneratedValues(input, plan)});
  result.module = ir::cloneForRewrite(analysis.prepared);
  ir::outlineRegion(result.module, method, result.region);
  return result;
}

/// Step peak of the rewritten model, bytes; the second of two steps.
int64_t measure(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                const OptimizeOptions& options) {
  TrainingStep step(module, inputs, options.step);
  ModuleState state(module);
  const auto restore = c10::make_scope_exit([&] { state.restore(); });
  step.run(options.method, false);
  return step.run(options.method, false).peak_bytes;
}

std::string dumpOriginal(const Analysis& analysis, const std::string& method) {
  const auto graph = analysis.prepared.get_method(method).graph()->copy();
  torch::jit::Inline(*graph);
  return ir::dumpGraph(*graph);
}

std::string bytesText(int64_t bytes, ir::Rounding rounding) {
  return ir::formatBytes(bytes, rounding) + " (" + std::to_string(bytes) + " bytes)";
}

}  // namespace

PlanningInput planningInput(const Analysis& analysis, const OptimizeOptions& options) {
  PlanningInput input;
  input.profile = analysis.profile;
  input.replayable = analysis.replayable;
  // A given plan must not depend on what was measured here.
  input.minimum_bytes = options.plan_json.empty() ? analysis.minimum_bytes : 1;
  exposeInternals(input);
  applyChoices(options, input);
  return input;
}

std::string budgetsMissed(const std::vector<int64_t>& budgets, int64_t reachable, int64_t reserve,
                          const std::string& method, const std::string& blockers) {
  std::string list;
  for (size_t i = 0; i < budgets.size(); ++i) {
    const bool last = i + 1 == budgets.size();
    list += i == 0 ? "" : last ? " and " : ", ";
    list += bytesText(budgets[i], ir::Rounding::kDown);
  }
  if (reserve > 0) list += ", after the reserve,";
  return std::string("the budget") + (budgets.size() == 1 ? "" : "s") + " of " + list +
         " can't be met: the lowest reachable peak of " + method + " is " +
         bytesText(reachable, ir::Rounding::kUp) + ", predicted; ask for " +
         (reserve > 0 ? bytesText(reachable + reserve, ir::Rounding::kUp) + " with that reserve"
                      : std::string("that much")) +
         " or for the lowest (min), or use a smaller batch" + blockers;
}

std::string blockersOf(const Analysis& analysis, const ir::Plan& plan,
                       const OptimizeOptions& options) {
  return blockersText(blockers(planningInput(analysis, options), plan, analysis.remarks));
}

std::vector<ir::Plan> planCurve(const Analysis& analysis, const std::vector<Budget>& budgets,
                                const OptimizeOptions& options) {
  for (const Budget& budget : budgets) checkBudget(budget);
  const PlanningInput input = planningInput(analysis, options);
  Planner planner(input);
  const ir::Plan lowest = minimumPlan(planner);
  std::vector<int64_t> bytes;
  bytes.reserve(budgets.size());
  for (const Budget& budget : budgets) {
    bytes.push_back(budget.kind == Budget::Kind::kMinimum ? lowest.predicted_peak
                                                          : budgetBytes(budget, analysis, options));
  }
  // Every answer is given when all is known: a lower budget never takes less time.
  std::vector<ir::Plan> plans = planner.sweep(bytes);
  // The sweep may have found a faster plan, but a lower peak than the search for the lowest is luck
  // that nobody who asks for it has again.
  const ir::Plan known = planner.known(lowest.predicted_peak);
  plans.push_back(known.predicted_peak < lowest.predicted_peak ? lowest : known);
  plans.back().planning_seconds = lowest.planning_seconds;
  for (ir::Plan& plan : plans) settleChoices(input, plan);
  return plans;
}

SavedPlan savePlan(const Analysis& analysis, const PlanningInput& input, const ir::Plan& plan,
                   const OptimizeOptions& options) {
  SavedPlan saved = savedPlan(input, plan);
  saved.profile_hash = textHash(ir::toJson(analysis.profile));
  saved.method = options.method;
  return saved;
}

GraphPlan planGraph(const Analysis& analysis, const OptimizeOptions& options) {
  const PlanningInput input = planningInput(analysis, options);
  Planner planner(input);
  GraphPlan result;
  result.plan = choosePlan(planner, input, options.budget, analysis, options);
  settleChoices(input, result.plan);
  result.reason_unchanged = reasonToStay(analysis, options, result.plan);
  const bool bounded = options.budget.kind != Budget::Kind::kMinimum && options.max_overhead < 0;
  result.plan.budget =
      bounded ? budgetBytes(options.budget, analysis, options) : result.plan.predicted_peak;
  if (!result.reason_unchanged.empty() || result.plan.predicted_peak <= result.plan.budget) {
    return result;
  }
  const std::string blocking = blockersText(blockers(input, result.plan, analysis.remarks));
  throw BudgetError(budgetsMissed({result.plan.budget}, result.plan.predicted_peak,
                                  options.reserve_bytes, options.method, blocking),
                    result.plan.predicted_peak, blocking);
}

OptimizeResult optimize(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                        const OptimizeOptions& options) {
  runtime::initialize();
  const auto say = [&](const std::string& text) {
    if (options.progress) {
      options.progress(text);
    }
  };
  Analysis analysis = analyze(module, inputs, options);
  const PlanningInput input = planningInput(analysis, options);
  const bool given = !options.plan_json.empty();
  std::optional<Planner> planner;
  if (!given) planner.emplace(input);
  OptimizeResult result;
  result.original_peak = analysis.original_peak;
  result.remarks = analysis.remarks;
  result.before_ir = dumpOriginal(analysis, options.method);
  result.module = analysis.prepared;

  const bool bounded = options.budget.kind != Budget::Kind::kMinimum && options.max_overhead < 0;
  const int64_t asked = bounded ? budgetBytes(options.budget, analysis, options) : 0;
  if (bounded && asked == 0) {
    throw BudgetError("the reserve of " + ir::formatBytes(options.reserve_bytes) +
                          " takes the whole budget; lower the reserve or raise the budget",
                      0);
  }
  Budget budget = options.budget;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    say("planning");
    result.plan = given ? reusedPlan(input, options, asked, analysis.minimum_bytes)
                        : choosePlan(*planner, input, budget, analysis, options);
    settleChoices(input, result.plan);
    if (!given) result.reason_unchanged = reasonToStay(analysis, options, result.plan);
    if (!result.reason_unchanged.empty()) break;
    if (bounded && result.plan.predicted_peak > asked) {
      const int64_t reachable = std::min(result.plan.predicted_peak, analysis.original_peak);
      const std::string blocking = blockersText(blockers(input, result.plan, analysis.remarks));
      throw BudgetError(
          budgetsMissed({asked}, reachable, options.reserve_bytes, options.method, blocking),
          reachable, blocking);
    }
    result.plan.budget = bounded ? asked : result.plan.predicted_peak;
    say("rewriting");
    Rewritten rewritten = rewrite(analysis, input, result.plan, options.method);
    result.changed = true;
    result.module = rewritten.module;
    result.annotations.values = valueNotes(input, result.plan, result.remarks);
    result.after_ir = ir::dumpGraph(*rewritten.region, &result.annotations);
    if (!options.measure || analysis.profile.derived()) break;
    say("measuring the result");
    result.measured_peak = measure(result.module, inputs, options);
    if (!bounded && !given && result.measured_peak >= analysis.original_peak) {
      result.reason_unchanged = "the best plan's measured peak of " +
                                ir::formatBytes(result.measured_peak) +
                                " is no lower than the model's";
      result.changed = false;
      result.module = analysis.prepared;
      break;
    }
    if (!bounded) {
      result.plan.budget = std::max(result.plan.budget, result.measured_peak);
      break;
    }
    if (result.measured_peak <= asked) break;
    if (given || attempt + 1 == kAttempts) {
      const std::string plans =
          given ? "with the given plan; plan anew, for a lower budget"
                : "after " + std::to_string(kAttempts) + " plans; ask for a lower budget";
      throw BudgetError("the budget of " + ir::formatBytes(asked) + " was not met when measured (" +
                            ir::formatBytes(result.measured_peak) + ") " + plans,
                        result.measured_peak);
    }
    budget.kind = Budget::Kind::kBytes;
    budget.bytes =
        asked + result.plan.predicted_peak - result.measured_peak + options.reserve_bytes;
  }
  result.saved_plan = savePlan(analysis, input, result.plan, options);
  result.saved_plan.budget = asked;
  result.annotations.plan_hash = planHash(result.saved_plan);
  result.annotations.profile_hash = result.saved_plan.profile_hash;
  result.annotations.method = options.method;
  result.annotations.inputs = analysis.profile.inputs;
  result.annotations.device = analysis.profile.device;
  result.annotations.loss = lossName(options.step);
  result.annotations.budget = result.plan.budget;
  result.annotations.original_peak = analysis.original_peak;
  result.annotations.predicted_peak = result.plan.predicted_peak;
  result.annotations.recompute_share = result.plan.recompute_share;
  if (const double step = stepSeconds(analysis.profile); step > 0) {
    result.extra_time_share = result.plan.recompute_seconds / step;
  }
  if (options.report) {
    say("planning for other budgets");
    result.report = planReport(analysis, input, result.plan, options);
  }
  result.profile = std::move(analysis.profile);
  return result;
}

}  // namespace remat
