#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "ir/remark.h"
#include "passes/remat.h"
#include "tools/common_options.h"
#include "tools/curve.h"
#include "tools/device_options.h"
#include "tools/errors.h"
#include "tools/max_batch.h"
#include "tools/output_files.h"
#include "tools/planning_session.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stdout_to_stderr.h"
#include "tools/verbs.h"
#include "tools/version.h"

namespace remat::tools {
namespace {

struct PlanArguments {
  RunOptions run;
  PlanningOptions planning;
  std::vector<std::string> budgets;
  bool max_batch = false;
  bool json = false;
};

void printTable(const Curve& curve) {
  std::printf("original peak %s, %s; lowest reachable %s, predicted\n",
              ir::formatBytes(curve.original_peak).c_str(),
              curve.derived.empty() ? "measured" : "predicted",
              ir::formatBytes(curve.minimum.predicted_peak, ir::Rounding::kUp).c_str());
  if (curve.reserve > 0) {
    std::printf("budgets are what the reserve of %s leaves\n",
                ir::formatBytes(curve.reserve).c_str());
  }
  if (!curve.derived.empty()) std::printf("all of it %s\n", curve.derived.c_str());
  std::printf("%12s %8s %12s %8s %12s %10s %8s %8s %6s %11s %10s\n", "budget", "", "predicted", "",
              "recomputed", "recomputed", "at least", "gap", "kept", "recomputed", "planning");
  std::printf("%12s %8s %12s %8s %12s %10s %8s %8s %6s %11s %10s\n", "", "", "peak", "",
              "of a forward", "seconds", "", "at most", "", "storages", "seconds");
  const auto share = [&](int64_t bytes) {
    return percent(static_cast<double>(bytes) /
                   static_cast<double>(std::max<int64_t>(curve.original_peak, 1)));
  };
  // Of a GPU's step it may be microseconds.
  const auto seconds = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, value > 0 && value < 1e-3 ? "%.2e" : "%.4f", value);
    return std::string(text);
  };
  std::set<int64_t> shown;
  for (const CurveRow& row : curve.rows) {
    const ir::Plan& plan = row.plan;
    if (!shown.insert(plan.budget).second) continue;  // the minimum may be a given budget, too
    const bool minimum = row.minimum || plan.budget == curve.minimum.predicted_peak;
    const std::string budget = (minimum ? "min " : "") + ir::formatBytes(plan.budget);
    if (!row.reached()) {
      std::printf("%12s %8s %12s\n", budget.c_str(), share(plan.budget).c_str(),
                  plan.budget < curve.original_peak ? "out of reach" : "as it is");
      continue;
    }
    std::printf("%12s %8s %12s %8s %12s %10s %8s %8s %6d %11d %10.2f\n", budget.c_str(),
                share(plan.budget).c_str(), ir::formatBytes(plan.predicted_peak).c_str(),
                share(plan.predicted_peak).c_str(), percent(plan.recompute_share).c_str(),
                seconds(plan.recompute_seconds).c_str(), percent(plan.lower_bound_share).c_str(),
                percent(plan.gap()).c_str(), plan.kept, plan.recomputed, plan.planning_seconds);
  }
}

/// Given budgets that can't be met end the verb with the budget's exit code, after what can be met
/// was printed.
void refuseMissed(const PlanArguments& arguments, const Curve& curve) {
  std::vector<int64_t> missed;
  for (const CurveRow& row : curve.rows) {
    const int64_t budget = row.plan.budget;
    if (!row.reached() && budget < curve.original_peak) missed.push_back(budget);
  }
  if (arguments.budgets.empty() || missed.empty()) return;
  throw ToolError(
      kOverBudget,
      arguments.run.model + ": " +
          budgetsMissed(missed, std::min(curve.minimum.predicted_peak, curve.original_peak),
                        curve.reserve, arguments.run.method, curve.blockers));
}

int planModel(const PlanArguments& arguments) {
  std::vector<Budget> budgets;
  for (const std::string& text : arguments.budgets) budgets.push_back(budgetOption(text));
  if (budgets.empty()) budgets = defaultBudgets();
  OptimizeOptions options = optimizeOptions(arguments.run, arguments.planning);
  const PlanningOptions& planning = arguments.planning;
  const MaxBatchRequest request{arguments.budgets, arguments.json};
  if (arguments.max_batch) {
    checkMaxBatch(request, planning);
  } else if (!planning.device_memory.empty() || !planning.optimizer.empty()) {
    throw usage("--device-memory and --optimizer need --max-batch; say --budget without it");
  }
  if (!planning.save_plan.empty() && arguments.budgets.size() != 1) {
    throw usage("--save-plan needs exactly one --budget");
  }
  for (const std::string& path : {planning.save_profile, planning.save_plan}) {
    if (!path.empty()) checkWritable(path);
  }
  checkDistinct({arguments.run.model}, {planning.save_profile, planning.save_plan});

  StdoutToStderr model_output;
  Progress progress;
  progress.show("loading " + arguments.run.model);
  const Session session = openSession(arguments.run);
  progress.clear();
  printNotes(session);
  options.step = session.step;
  options.progress = [&](const std::string& text) { progress.show(text); };
  measureTarget(options);
  if (arguments.max_batch) {
    model_output.restore();
    printMaxBatch(request, planning, session, options);
    return kDone;
  }
  const Analysis analysis = naming(
      arguments.run.model, [&] { return analyze(session.file.module, session.inputs, options); });
  const Curve curve = naming(arguments.run.model, [&] {
    return makeCurve(analysis, budgets, arguments.budgets.empty(), options);
  });
  OutputFiles files;
  if (!planning.save_profile.empty()) {
    files.add(planning.save_profile, ir::toJson(analysis.profile));
  }
  if (!planning.save_plan.empty() && curve.rows.front().reached()) {
    SavedPlan saved =
        savePlan(analysis, planningInput(analysis, options), curve.rows.front().plan, options);
    saved.tool_version = kToolVersion;
    if (curve.rows.front().minimum) saved.budget = 0;
    files.add(planning.save_plan, toJson(saved));
  }
  files.commit();
  progress.clear();
  printRemarks(analysis.remarks);
  printProfileNotes(analysis.profile, session.step);
  model_output.restore();
  if (arguments.json) {
    std::printf("%s", jsonText(toJson(curve)).c_str());
  } else {
    printTable(curve);
  }
  std::fflush(stdout);
  refuseMissed(arguments, curve);
  return kDone;
}

}  // namespace

void addPlanVerb(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* verb = app.add_subcommand(
      "plan", "Prints what each memory budget would cost in time; writes no model");
  verb->add_option("MODEL", arguments->run.model, "The saved model")->required();
  verb->add_option(
          "--budget", arguments->budgets,
          "A budget as optimize takes it; repeat it for more. Without it: 100%, 90% … 10% and min")
      ->type_name("BUDGET")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  addRunOptions(*verb, arguments->run);
  addPlanningOptions(*verb, arguments->planning);
  verb->add_flag("--max-batch", arguments->max_batch,
                 "Instead: the largest batch that fits --budget (in bytes) or --device-memory, "
                 "predicted from two small ones (--profile-batches; 2,4 of the inputs, or 1,2)");
  verb->add_option(
          "--device-memory", arguments->planning.device_memory,
          "For --max-batch: what the device has for parameters, buffers, inputs, optimiser "
          "state, gradients and the step together, as 24GiB, or 90% of a GPU's")
      ->type_name("BYTES");
  verb->add_option(
          "--optimizer", arguments->planning.optimizer,
          "For --device-memory: sgd, momentum, adam, or bytes of state per parameter element")
      ->type_name("NAME");
  verb->add_flag("--json", arguments->json, "Print the curve as JSON");
  verb->footer(
      "Example:\n  remat-opt plan resnet50.pt --input 16x3x224x224 --budget 80% --budget 50%");
  verb->callback([arguments, &action] { action = [arguments] { return planModel(*arguments); }; });
}

}  // namespace remat::tools
