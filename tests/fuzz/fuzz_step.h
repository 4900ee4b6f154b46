#pragma once

#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/fuzz/trial.h"

namespace remat::fuzz {

/// What one call left behind.
struct Step {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;  ///< of the parameters, then of x; undefined where none
  std::vector<at::Tensor> buffers;
  std::vector<at::Tensor> input;  ///< x after the call
  std::vector<at::Tensor> next_draw;
};

/// A module and how its forward is run.
struct Model {
  torch::jit::Module module;
  std::function<c10::IValue(const at::Tensor& x)> forward;
};

/// Operator after operator, as eager mode runs them. TorchScript with its optimisation off is not
/// quite that: it leaves out what nothing reads, also where that draws random numbers.
Model eagerly(const torch::jit::Module& module);
/// As TorchScript runs it.
Model asScript(const torch::jit::Module& module);

/// x of call number `call`.
at::Tensor inputOf(const Trial& trial, int call);

/// One call in the trial's variant. Throws what the model or autograd throws.
Step takeStep(const Model& model, const Trial& trial, int call);

/// SGD on what has a gradient.
void update(const torch::jit::Module& module);

/// Whether all values and gradients are: NaN compares nothing.
bool finite(const std::vector<Step>& steps);

/// The first difference in words; empty where there is none. Not `exact`: within 1e-3 of a tensor's
/// largest value.
std::string firstDifference(const std::vector<Step>& expected, const std::vector<Step>& actual,
                            bool exact);

}  // namespace remat::fuzz
