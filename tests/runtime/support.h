#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/region_program.h"

namespace remat::runtime::test {

using c10::IValue;
using torch::jit::Module;
using Tensors = std::vector<at::Tensor>;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

/// Starts every case from the same random numbers, with TorchScript's optimisation off: the plain
/// module is then eager bit for bit.
class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

/// A module that requires gradients of `parameters`, with the method(s) in `source`.
Module makeModule(const std::string& source, const Named& parameters = {},
                  const Named& buffers = {});
/// Makes `with self.no_grad:` turn gradients off in methods that are defined afterwards.
void addNoGrad(Module& module);
/// The same module with tensors of its own; parameters are leaves.
Module copyOf(const Module& module);
/// Random numbers around zero; `grad` makes a leaf of them.
at::Tensor randomTensor(at::IntArrayRef sizes, bool grad = false,
                        at::ScalarType dtype = at::kFloat);

/// The region of `module`'s forward: prepared, and marked are the values that nodes of the kinds
/// `keep` make (`aten::matmul`), beside those that must be. `inside of aten::matmul` has what such
/// nodes save inside of themselves made again; `each time aten::tanh` recomputes their values for
/// each use.
std::shared_ptr<torch::jit::Graph> regionOf(const Module& module,
                                            const std::vector<std::string>& keep = {});
/// The same, compiled.
std::shared_ptr<const RegionProgram> programOf(const Module& module,
                                               const std::vector<std::string>& keep = {});
/// A module with tensors of its own whose forward runs the region through remat::checkpoint.
Module optimized(const Module& module, const std::vector<std::string>& keep = {});

/// Leaves of the same bytes as `inputs`, other storages; what is no tensor is passed on.
std::vector<IValue> freshInputs(const std::vector<IValue>& inputs);
/// Every tensor in a module's result, in order.
Tensors tensorsIn(const IValue& value);

/// Their bytes, detached; undefined ones stay undefined.
Tensors copies(const Tensors& tensors);
/// A gradient for `output`: numbers that depend on its shape alone.
at::Tensor rootGradient(const at::Tensor& output);

/// What a training step leaves behind.
struct StepResult {
  Tensors outputs;
  Tensors gradients;  ///< of the parameters, then of the inputs; undefined where none
  Tensors buffers;
  at::Tensor next_draw;
};

using Forward = std::function<IValue(std::vector<IValue>)>;
/// One step: gradients None, seed, forward, backward from fixed numbers, next draw.
StepResult step(Module& module, const std::vector<IValue>& inputs, int seed = 7,
                const Forward& forward = {});
/// Asserts that the two are bit for bit the same.
void expectSame(const StepResult& expected, const StepResult& actual,
                const std::string& where = "");
void expectSame(const Tensors& expected, const Tensors& actual, const std::string& what);

/// Trains `module` and its optimised copy for `steps` steps with a weight update in between, and
/// expects the same of both in each.
void expectTrainsAlike(const Module& module, const std::vector<IValue>& inputs,
                       const std::vector<std::string>& keep = {}, int steps = 4);

/// Nodes replayed since the last call; statistics are on in every RuntimeTest.
int64_t replayedNodes();

/// The message of the c10::Error (or other exception) that `run` throws; empty if it throws none.
std::string errorOf(const std::function<void()>& run);

}  // namespace remat::runtime::test
