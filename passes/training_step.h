#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "passes/errors.h"
#include "passes/options.h"

namespace torch::autograd {
struct Edge;
}

namespace remat {

/// What one training step left behind. Tensors are copies in memory that is not counted, so that
/// taking them changes no peak; of a step on another device they lie on the CPU.
struct StepOutcome {
  int64_t peak_bytes = 0;  ///< most that tensors held at once, above what lived before the step
  double seconds = 0;      ///< forward, loss and backward, wall time
  std::vector<at::Tensor> outputs;    ///< the tensors of the output, in the order of tensorsOf
  std::vector<at::Tensor> gradients;  ///< of parameters(), then of inputs; undefined where none
  std::vector<at::Tensor> buffers;    ///< of buffers() in order
  at::Tensor next_draw;               ///< the next random numbers after the step
};

/// The step that is profiled, verified and measured: gradients None before it; forward; backward
/// from fixed random gradients for every floating-point tensor that requires grad in the output
/// (tuples, lists, dicts and NamedTuples included), allocated before the step; or a cross-entropy
/// loss with random targets.
///
/// As a training program would, the step lets go of the output as soon as the backward's roots (or
/// the loss) exist. The cross-entropy loss takes the first floating-point tensor of the output that
/// has at least two dimensions: [N, C] and [N, C, d1, d2, …] with the classes in dimension 1, [N,
/// T, C] (language models) with the classes last.
///
/// Every run starts from the same random seed and leaves the caller's random state as it was.
/// Inputs that a forward writes in place are set back before the next run. Buffers move on from
/// step to step, as in training: see ModuleState for putting them back. Parameters' gradients are
/// None after a run.
class TrainingStep {
 public:
  using Forward = std::function<c10::IValue(const std::vector<c10::IValue>& inputs)>;

  /// `inputs` without self; they are copied. Nothing is run yet; the first run learns the output's
  /// structure with an extra forward, whose effect on buffers and random state is undone.
  TrainingStep(torch::jit::Module module, std::vector<c10::IValue> inputs, StepOptions options);

  /// Runs one step through `forward`. With `keep_results` false only peak and seconds are filled.
  /// Throws StepError where the output gives a backward nothing to start from.
  StepOutcome run(const Forward& forward, bool keep_results);
  /// The same through the module's own method.
  StepOutcome run(const std::string& method, bool keep_results);

  const torch::jit::Module& module() const { return module_; }

 private:
  struct Seeds;

  void learn(const Forward& forward);
  void reset();
  void addRoots(const c10::IValue& output, std::vector<torch::autograd::Edge>& roots,
                std::vector<at::Tensor>& gradients) const;
  void backward(c10::IValue output);
  void takeResults(StepOutcome& outcome);

  torch::jit::Module module_;
  std::vector<c10::IValue> inputs_;
  StepOptions options_;
  std::shared_ptr<Seeds> seeds_;
};

}  // namespace remat
