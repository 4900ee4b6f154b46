#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "passes/options.h"

namespace remat {

/// Puts activation checkpointing into LibTorch's registry of custom passes: from now on TorchScript
/// modules that are run in this process are checkpointed by the JIT itself, within
/// `options.budget` of a step of each. Returns the name to take it out again with:
/// torch::jit::clearPrePass; what was compiled before stays as it is.
///
/// The executor shows a pass a whole method, with sizes, where the method was called a few times
/// with gradients off before: see warmUp. Everything else that it hands over (halves of
/// differentiable graphs, methods that never train) is left as it is, and `options.progress` (or
/// stderr) is told why, once for each reason.
///
/// Where the budget can't be met, the call that compiles throws BudgetError's text.
unsigned registerPass(const OptimizeOptions& options);

/// A registration for as long as it lives.
class RegisteredPass {
 public:
  explicit RegisteredPass(const OptimizeOptions& options) : name_(registerPass(options)) {}
  ~RegisteredPass();
  RegisteredPass(const RegisteredPass&) = delete;
  RegisteredPass& operator=(const RegisteredPass&) = delete;

 private:
  unsigned name_;
};

/// Calls `method` of `module` with gradients off until the executor has compiled it, so that
/// registered passes get to see it whole; plans are then made for `inputs` (without self). Call it
/// once before training, in training mode, and again inside of the autocast scope if training uses
/// one: TorchScript compiles for each. Buffers, flags and random state are as before afterwards.
/// Only calls that the executor optimises are checkpointed: with setGraphExecutorOptimize(false)
/// nothing changes.
void warmUp(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
            const std::string& method = "forward");

}  // namespace remat
