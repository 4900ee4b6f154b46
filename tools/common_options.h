#pragma once

#include <ATen/core/ivalue.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "passes/options.h"
#include "tools/budget.h"
#include "tools/input_spec.h"
#include "tools/model_file.h"

namespace remat::tools {

/// Options of every verb that runs the model.
struct RunOptions {
  std::string model;
  std::string method = "forward";
  std::vector<std::string> input_specs;
  std::string inputs_file;
  std::string device = "cpu";
  std::string loss;
  std::string autocast;
  bool deterministic = false;
  std::vector<std::string> libraries;
};

/// Options of the verbs that plan.
struct PlanningOptions {
  std::string reserve;
  std::string max_overhead;
  std::string device_memory;
  std::string plan_for;
  std::string roofline;
  std::string optimizer;
  std::vector<std::string> allow_ops;
  std::vector<std::string> keep;
  std::vector<std::string> recompute;
  std::vector<int64_t> profile_batches;
  int64_t batch_dim = 0;
  std::string profile;
  std::string save_profile;
  std::string plan;
  std::string save_plan;
};

void addRunOptions(CLI::App& verb, RunOptions& options);
void addPlanningOptions(CLI::App& verb, PlanningOptions& options);

/// The model and its arguments, loaded and tried out.
struct Session {
  ModelFile file;
  std::vector<c10::IValue> inputs;
  StepOptions step;
  bool scalar_output = false;  ///< the output is one number: a loss
  std::string input_text;      ///< the inputs as the user gave them
};

/// Parses what the command line says, loads the model, and runs its forward once, without a trace
/// in buffers or random state, so that an input that doesn't fit is reported as such. Throws
/// ToolError.
Session openSession(const RunOptions& options);

/// The planner's options but for budget and step, before anything is loaded. Throws ToolError.
OptimizeOptions optimizeOptions(const RunOptions& run, const PlanningOptions& planning);

/// The plan file `path` as `options` take it: decisions and budget. Throws ToolError.
void applyPlanFile(const std::string& path, OptimizeOptions& options);

/// --device-memory, and the optimiser whose state goes into its sum. --optimizer, which needs it,
/// is checked with it. Throw ToolError.
MemorySize deviceMemoryOption(const PlanningOptions& planning);
std::string optimizerOption(const PlanningOptions& planning);

/// The budget that one option gives; text of several names the option in errors.
Budget budgetOption(const std::string& text);

}  // namespace remat::tools
