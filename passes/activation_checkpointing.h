#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "passes/remat.h"

namespace torch::jit {
struct Graph;
}

namespace remat {

/// What the pass did to one graph.
struct CheckpointingResult {
  bool changed = false;
  std::string reason_unchanged;  ///< for people
  ir::Plan plan;
  std::vector<ir::Remark> remarks;
  ir::Profile profile;
  int64_t original_peak = 0;  ///< bytes, of a step with everything kept, measured
};

/// Activation checkpointing as a graph pass: `graph` becomes one `remat::region` node that keeps
/// and recomputes as a plan within `options.budget` says; results, gradients, buffers and random
/// numbers stay the same. `graph` must have its calls inlined; any passes may have run before, and
/// may run afterwards.
///
/// The plan needs a profile. `options.profile_json` gives one; else a few training steps of the
/// graph are run here, on `arguments`, one for each of the graph's inputs, self included (a
/// module's parameters, buffers, flags and gradients are put back). Without arguments they are made
/// up by the types of the graph's values, which must say sizes then, as an executor's profiling
/// leaves them (passes/typed_arguments.h); with a profile, too: what requires gradients is seen
/// from them.
///
/// `options.method`, `measure`, `profile_batches`, `plan_json` and `report` play no part. Where
/// nothing is to be gained the graph stays as it was. Throws BudgetError, StepError (the graph
/// doesn't train), and RematError.
CheckpointingResult ActivationCheckpointing(const std::shared_ptr<torch::jit::Graph>& graph,
                                            const OptimizeOptions& options,
                                            const std::vector<c10::IValue>& arguments = {});

/// The pass as a torch::jit::GraphPass, for pipelines of passes; `arguments` as above, for graphs
/// whose values don't say all of their types.
std::function<void(std::shared_ptr<torch::jit::Graph>&)> makePass(
    const OptimizeOptions& options, const std::vector<c10::IValue>& arguments = {});

}  // namespace remat
