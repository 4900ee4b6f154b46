#pragma once

#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <string>
#include <vector>

#include "ir/annotations.h"
#include "ir/plan.h"
#include "ir/profile.h"
#include "ir/remark.h"
#include "passes/errors.h"
#include "passes/extrapolate.h"
#include "passes/options.h"
#include "passes/plan_file.h"
#include "passes/plan_report.h"

namespace remat {

/// `the budget of 5.3 MB (5350000 bytes) can't be met: the lowest reachable peak of forward is 5.4
/// MB (5380000 bytes), predicted; …`, with `blockers` (blockersText) behind. Budgets, from which a
/// `reserve` was taken off already, are rounded down and the peak up: they never read alike.
std::string budgetsMissed(const std::vector<int64_t>& budgets, int64_t reachable, int64_t reserve,
                          const std::string& method, const std::string& blockers);

/// What is known of a model before a budget is chosen.
struct Analysis {
  torch::jit::Module prepared;  ///< own type, shares parameters and buffers with the model
  std::shared_ptr<torch::jit::Graph> graph;  ///< the prepared graph of the method
  ir::Profile profile;
  std::vector<char> replayable;     ///< by node of the profile
  std::vector<ir::Remark> remarks;  ///< every reason why a node is kept, with its saved bytes
  /// Bytes, measured: the better of TorchScript's optimisation on and off.
  int64_t original_peak = 0;
  int64_t minimum_bytes = 0;           ///< smaller storages are kept, see OptimizeOptions
  std::vector<BatchProfile> recorded;  ///< what `profile` was extrapolated from; else empty
};

/// What planner and simulator decide on.
PlanningInput planningInput(const Analysis& analysis, const OptimizeOptions& options);

/// Prepares, profiles and judges `method` of `module`, which stays as it was (buffers, flags,
/// gradients and random state included). `inputs` are the method's arguments without self.
Analysis analyze(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                 const OptimizeOptions& options);

/// The same of a prepared graph (prepareInlined) that is no method of a module. It takes `inputs`,
/// behind `module` if `takes_self`; without, any module will do. The original's peak is that of the
/// recorded step with everything kept.
Analysis analyzeGraph(const std::shared_ptr<torch::jit::Graph>& prepared,
                      const torch::jit::Module& module, bool takes_self,
                      const std::vector<c10::IValue>& inputs, const OptimizeOptions& options);

/// Plans for several budgets at once: the memory/time curve. The last entry is the lowest reachable
/// peak.
std::vector<ir::Plan> planCurve(const Analysis& analysis, const std::vector<Budget>& budgets,
                                const OptimizeOptions& options);

struct GraphPlan {
  ir::Plan plan;
  std::string reason_unchanged;  ///< for people: why nothing is to be gained; else empty
};

/// The plan for `options.budget`, predicted and not measured. Throws BudgetError.
GraphPlan planGraph(const Analysis& analysis, const OptimizeOptions& options);

/// What holds the peak of `plan` up, in words: see blockersText.
std::string blockersOf(const Analysis& analysis, const ir::Plan& plan,
                       const OptimizeOptions& options);

/// `plan`, made by `input` of `analysis`, in the form for files. Its tool's version stays empty.
SavedPlan savePlan(const Analysis& analysis, const PlanningInput& input, const ir::Plan& plan,
                   const OptimizeOptions& options);

struct OptimizeResult {
  bool changed = false;          ///< false: nothing to gain, `module` is the model as it was
  torch::jit::Module module;     ///< shares parameters and buffers with the model
  std::string reason_unchanged;  ///< for people
  ir::Plan plan;
  /// Predicted seconds of recomputation over those of the original's step. Nothing else that may
  /// make the rewritten step slower (operators run unfused, the runtime) is in it.
  double extra_time_share = 0;
  SavedPlan saved_plan;         ///< the plan for a file; the tool's version is empty
  ir::Annotations annotations;  ///< to be saved beside the code
  std::vector<ir::Remark> remarks;
  ir::Profile profile;
  int64_t original_peak = 0;  ///< bytes, measured
  int64_t measured_peak = 0;  ///< bytes, of the result; 0: not measured
  std::string before_ir;      ///< annotated dumps
  std::string after_ir;
  std::optional<PlanReport> report;  ///< see OptimizeOptions::report
};

/// The whole pipeline. Throws BudgetError and RematError.
OptimizeResult optimize(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                        const OptimizeOptions& options);

}  // namespace remat
