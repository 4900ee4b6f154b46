#include <torch/csrc/jit/serialization/import.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "ir/outline.h"
#include "ir/remark.h"
#include "llvm/Support/FileSystem.h"
#include "passes/remat.h"
#include "tools/budget.h"
#include "tools/common_options.h"
#include "tools/comparing_options.h"
#include "tools/device_budget.h"
#include "tools/device_options.h"
#include "tools/errors.h"
#include "tools/output_files.h"
#include "tools/planning_session.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stdout_to_stderr.h"
#include "tools/verbs.h"
#include "tools/version.h"

namespace remat::tools {
namespace {

struct OptimizeArguments {
  RunOptions run;
  PlanningOptions planning;
  std::string output;
  std::string budget;
  std::string dump_folder;
  std::vector<std::string> reports;
  bool verify = false;
  ComparingOptions comparing;
  bool json = false;
};

/// Where the budget comes from a device's memory: the sum, printed and put into `options`.
DeviceBudget applyDeviceMemory(const PlanningOptions& planning, const MemorySize& device_memory,
                               bool json, const Session& session, OptimizeOptions& options) {
  DeviceBudget budget =
      deviceBudget(memoryCapacity(device_memory, options), optimizerOption(planning),
                   options.reserve_bytes, session.file.module, session.inputs);
  std::fprintf(json ? stderr : stdout, "%s", budget.text.c_str());
  std::fflush(stdout);
  if (budget.step_bytes <= 0) {
    throw ToolError(kOverBudget,
                    session.file.path + ": --device-memory " + planning.device_memory +
                        " leaves nothing for a training step; parameters, buffers, inputs, "
                        "optimiser state and reserve take " +
                        ir::formatBytes(budget.fixed_bytes, ir::Rounding::kUp));
  }
  options.budget.kind = Budget::Kind::kBytes;
  options.budget.bytes = budget.step_bytes;
  options.reserve_bytes = 0;  // taken off above
  return budget;
}

/// The pipeline; where the budget is what a device's memory leaves, an error speaks of that memory.
OptimizeResult optimizeSession(const Session& session,
                               const std::optional<DeviceBudget>& device_memory,
                               const OptimizeOptions& options) {
  const StdoutToStderr model_output;
  return naming(session.file.path, [&] {
    try {
      return optimize(session.file.module, session.inputs, options);
    } catch (const BudgetError& error) {
      if (!device_memory) throw;
      const int64_t needed = device_memory->memoryFor(error.minimum_peak);
      throw ToolError(
          kOverBudget,
          session.file.path + ": needs --device-memory of at least " +
              ir::formatBytes(needed, ir::Rounding::kUp) + " (" + std::to_string(needed) +
              " bytes): the lowest reachable step peak of " + options.method + " is " +
              ir::formatBytes(error.minimum_peak, ir::Rounding::kUp) + ", and " +
              ir::formatBytes(options.budget.bytes, ir::Rounding::kDown) +
              " are left for it; ask for that much, or use a smaller batch" + error.blockers);
    }
  });
}

/// Everything that can be wrong with the command line or the output paths, before the work.
MemorySize checkArguments(const OptimizeArguments& arguments) {
  const PlanningOptions& planning = arguments.planning;
  const int given = (arguments.budget.empty() ? 0 : 1) + (planning.max_overhead.empty() ? 0 : 1) +
                    (planning.device_memory.empty() ? 0 : 1) + (planning.plan.empty() ? 0 : 1);
  if (given != 1) {
    throw usage(
        std::string(given == 0 ? "one" : "only one") +
        " of --budget, --max-overhead, --device-memory and --plan is needed; say --budget 50%");
  }
  if (!planning.plan.empty() && !(planning.keep.empty() && planning.recompute.empty())) {
    throw usage("--keep and --recompute make a plan; leave them out beside --plan");
  }
  comparingOptions(arguments.comparing);
  for (const std::string& path : arguments.reports) checkReportExtension(path);
  const MemorySize device_memory = deviceMemoryOption(planning);
  checkWritable(arguments.output);
  std::vector<std::string> results{planning.save_profile, planning.save_plan};
  results.insert(results.end(), arguments.reports.begin(), arguments.reports.end());
  for (const std::string& path : results) {
    if (!path.empty()) checkWritable(path);
  }
  if (!arguments.dump_folder.empty()) {
    results.push_back(arguments.dump_folder + "/before.ir");
    results.push_back(arguments.dump_folder + "/after.ir");
  }
  checkDistinct({arguments.run.model, arguments.output}, results);
  return device_memory;
}

/// `module` with everything it holds on the CPU, so that a file planned on another device loads
/// anywhere.
torch::jit::Module onCpu(const torch::jit::Module& module) {
  std::stringstream archive;
  module.save(archive);
  return torch::jit::load(archive, c10::Device(c10::kCPU));
}

void addDumps(const OptimizeArguments& arguments, const OptimizeResult& result,
              OutputFiles& files) {
  if (arguments.dump_folder.empty()) return;
  if (const std::error_code error = llvm::sys::fs::create_directories(
          arguments.dump_folder, /*IgnoreExisting=*/true, llvm::sys::fs::perms::all_all)) {
    throw refused(arguments.dump_folder + ": can't be created: " + error.message());
  }
  files.add(arguments.dump_folder + "/before.ir", result.before_ir);
  files.add(arguments.dump_folder + "/after.ir",
            result.changed ? result.after_ir : result.before_ir);
}

void writeFiles(const OptimizeArguments& arguments, const Session& session, bool bounded,
                const std::string& parity, OptimizeResult& result) {
  OutputFiles files;
  addDumps(arguments, result, files);
  for (const std::string& path : arguments.reports) {
    files.add(path, reportText({arguments.run.model, arguments.output, &result, parity}, path));
  }
  if (!arguments.planning.save_profile.empty()) {
    files.add(arguments.planning.save_profile, ir::toJson(result.profile));
  }
  if (!arguments.planning.save_plan.empty()) {
    result.saved_plan.tool_version = kToolVersion;
    files.add(arguments.planning.save_plan, toJson(result.saved_plan));
  }
  result.annotations.tool_version = kToolVersion;
  // verify holds a file to its budget; as low as reachable is none.
  if (!bounded) result.annotations.budget = 0;
  AtomicFile& output = files.add(arguments.output);
  if (!result.changed && ir::optimizedMethods(session.file.module).empty()) {
    copyModel(arguments.run.model, output);
  } else {
    const torch::jit::Module module =
        c10::Device(session.step.device).is_cpu() ? result.module : onCpu(result.module);
    writeModel(module, session.file.extra_files, result.changed ? &result.annotations : nullptr,
               output);
  }
  files.commit();
}

/// Trains the original beside what is going to be written, as it will be loaded; `bitwise` or
/// `close`. Throws ToolError where they differ: nothing is written then.
std::string verifyResult(const OptimizeArguments& arguments, const Session& session,
                         const OptimizeResult& result, const ShowProgress& progress) {
  if (!arguments.verify || !result.changed) return "";
  const Comparing comparing = comparingOptions(arguments.comparing);
  std::stringstream archive;
  result.module.save(archive);
  const c10::Device device(session.step.device);
  const torch::jit::Module original = loadModel(arguments.run.model, device).module;
  const StdoutToStderr model_output;
  const Verdict verdict = naming(session.file.path, [&] {
    return compareModules(original, torch::jit::load(archive, device), arguments.run.method,
                          session.inputs, session.step, comparing, progress);
  });
  noteDeterminism(verdict);
  if (!verdict.same) {
    throw ToolError(kDifference, session.file.path + ": trains otherwise once it is optimised" +
                                     differenceText(verdict, "; please report this") +
                                     ". Nothing was written");
  }
  return matchName(verdict.parity.worst());
}

void printPeak(const char* name, int64_t bytes, int64_t original) {
  std::printf("  %-16s%12s  %8s\n", name, ir::formatBytes(bytes).c_str(),
              percent(original > 0 ? static_cast<double>(bytes) / static_cast<double>(original) : 0)
                  .c_str());
}

void printSummary(const OptimizeArguments& arguments, const OptimizeResult& result,
                  const std::string& parity) {
  std::printf("%s: %s\n", arguments.run.model.c_str(), arguments.run.method.c_str());
  printPeak("original peak", result.original_peak, result.original_peak);
  const std::string derived = derivationText(result.profile);
  if (!derived.empty()) {
    std::printf("  bytes and times are %s: nothing was measured %s\n", derived.c_str(),
                result.profile.recorded_on.empty() ? "at these inputs" : "there");
  }
  if (!result.changed) {
    std::printf("nothing to gain: %s\n%s: written as it was\n", result.reason_unchanged.c_str(),
                arguments.output.c_str());
    return;
  }
  printPeak("budget", result.plan.budget, result.original_peak);
  printPeak("predicted peak", result.plan.predicted_peak, result.original_peak);
  if (result.measured_peak > 0)
    printPeak("measured peak", result.measured_peak, result.original_peak);
  std::printf(
      "  %-16s%12s  of one forward, at most %s more than the least possible; %d of %d storages\n",
      "recomputed", percent(result.plan.recompute_share).c_str(),
      percent(result.plan.gap()).c_str(), result.plan.recomputed,
      result.plan.recomputed + result.plan.kept);
  const std::string& limit = arguments.planning.max_overhead;
  std::printf("  %-16s%12s  predicted, of the step%s\n", "extra time",
              percent(result.extra_time_share).c_str(),
              limit.empty() ? "" : (" (limit " + percent(parsePercentage(limit)) + ")").c_str());
  if (!parity.empty()) {
    std::printf("  %-16s%12s  with the original, %d steps\n", "trains", parity.c_str(),
                arguments.comparing.steps);
  }
  std::printf("%s: written; load libremat_runtime.so before it\n", arguments.output.c_str());
}

int optimizeModel(const OptimizeArguments& arguments) {
  const MemorySize device_memory = checkArguments(arguments);
  OptimizeOptions options = optimizeOptions(arguments.run, arguments.planning);
  if (!arguments.budget.empty()) options.budget = budgetOption(arguments.budget);
  if (!arguments.planning.plan.empty()) applyPlanFile(arguments.planning.plan, options);
  if (options.max_overhead >= 0) options.budget.kind = Budget::Kind::kMinimum;

  Progress progress;
  progress.show("loading " + arguments.run.model);
  const Session session = [&] {
    const StdoutToStderr model_output;
    return openSession(arguments.run);
  }();
  progress.clear();
  printNotes(session);
  options.step = session.step;
  std::optional<DeviceBudget> device_budget;
  if (device_memory.given()) {
    device_budget =
        applyDeviceMemory(arguments.planning, device_memory, arguments.json, session, options);
  }
  if (ir::isOptimized(session.file.module, options.method)) {
    std::fprintf(stderr, "note: %s is optimised already: it is planned anew from its original %s\n",
                 arguments.run.model.c_str(), options.method.c_str());
  }
  options.report = !arguments.reports.empty();
  options.progress = [&](const std::string& text) { progress.show(text); };
  measureTarget(options);
  OptimizeResult result = optimizeSession(session, device_budget, options);
  const std::string parity = verifyResult(arguments, session, result, options.progress);
  progress.show("writing " + arguments.output);
  writeFiles(arguments, session, options.budget.kind != Budget::Kind::kMinimum, parity, result);
  progress.clear();
  printRemarks(result.remarks);
  printProfileNotes(result.profile, session.step);
  if (arguments.json) {
    std::printf("%s",
                jsonText(toJson({arguments.run.model, arguments.output, &result, parity})).c_str());
  } else {
    printSummary(arguments, result, parity);
  }
  return kDone;
}

}  // namespace

void addOptimizeVerb(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<OptimizeArguments>();
  CLI::App* verb = app.add_subcommand(
      "optimize", "Rewrites a model so that a training step fits a memory budget, and measures it");
  verb->add_option("MODEL", arguments->run.model, "The saved model")->required();
  verb->add_option("-o,--output", arguments->output, "Where the optimised model goes")
      ->type_name("FILE")
      ->required();
  verb->add_option(
          "--budget", arguments->budget,
          "(One of --budget, --max-overhead, --device-memory and --plan is needed.) Of a training "
          "step's "
          "peak: 50% of the original's, 900MB, 2GiB, or min, as low as is "
          "reachable. The peak is the most bytes that tensors of one step hold at once, above what "
          "was "
          "alive before it")
      ->type_name("BUDGET");
  verb->add_option(
          "--max-overhead", arguments->planning.max_overhead,
          "(In place of --budget.) As little memory as this much predicted extra time of a step "
          "allows, as 20%: "
          "that of recomputation alone, not of running operators unfused or of the runtime")
      ->type_name("PERCENT");
  verb->add_option("--device-memory", arguments->planning.device_memory,
                   "(In place of --budget.) What the device has for parameters, buffers, inputs, "
                   "optimiser state, "
                   "gradients and the step together, as 24GiB, or 90% of a GPU's")
      ->type_name("BYTES");
  verb->add_option(
          "--optimizer", arguments->planning.optimizer,
          "For --device-memory: sgd, momentum, adam, or bytes of state per parameter element")
      ->type_name("NAME");
  verb->add_option("--plan", arguments->planning.plan,
                   "(In place of --budget.) Take a plan written by --save-plan, with its budget, "
                   "instead of searching for one")
      ->type_name("FILE");
  addRunOptions(*verb, arguments->run);
  addPlanningOptions(*verb, arguments->planning);
  verb->add_flag("--verify", arguments->verify,
                 "Train the result beside the original before it is written; write nothing where "
                 "they differ");
  addComparingOptions(*verb, arguments->comparing, "--verify");
  verb->add_option("--dump-ir", arguments->dump_folder, "Write before.ir and after.ir there")
      ->type_name("FOLDER");
  verb->add_option("--report", arguments->reports,
                   "Write a report, .html to look at or .json; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  verb->add_flag("--json", arguments->json, "Print the result as JSON");
  verb->footer(
      "Example:\n  remat-opt optimize gpt2.pt -o small.pt --input 4x512:int64:0..8191 --budget "
      "900MB");
  verb->callback(
      [arguments, &action] { action = [arguments] { return optimizeModel(*arguments); }; });
}

}  // namespace remat::tools
