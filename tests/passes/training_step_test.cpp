#include "passes/training_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <string>
#include <vector>

#include "passes/module_state.h"
#include "passes/value_tensors.h"

namespace remat {
namespace {

using c10::IValue;
using torch::jit::Module;

/// A module with a weight [4, 4] and a counter buffer, whose forward is `body`.
Module makeModule(const std::string& body, at::ScalarType dtype = at::kFloat) {
  Module module("Sample");
  module.register_parameter("weight", at::full({4, 4}, 0.5, dtype).set_requires_grad(true),
                            /*is_buffer=*/false);
  module.register_buffer("count", at::zeros({1}));
  module.register_attribute("calls", c10::IntType::get(), IValue(0));
  module.define(body);
  return module;
}

StepOptions options() {
  StepOptions options;
  options.seed = 7;
  return options;
}

const char* const kDropoutForward = R"(
def forward(self, x: Tensor) -> Tensor:
    self.count.add_(1)
    self.calls = self.calls + 1
    return torch.dropout(torch.matmul(x, self.weight), 0.5, True)
)";

TEST(TrainingStep, SameSeedSameResults) {
  const Module module = makeModule(kDropoutForward);
  TrainingStep step(module, {at::ones({8, 4})}, options());
  const StepOutcome first = step.run("forward", true);
  at::rand({3});  // the caller's own draws don't matter
  const StepOutcome second = step.run("forward", true);
  ASSERT_EQ(first.outputs.size(), 1U);
  ASSERT_EQ(first.gradients.size(), 1U);
  EXPECT_TRUE(first.outputs[0].equal(second.outputs[0]));
  EXPECT_TRUE(first.gradients[0].equal(second.gradients[0]));
  EXPECT_TRUE(first.next_draw.equal(second.next_draw));
  EXPECT_GT(first.gradients[0].abs().sum().item<float>(), 0);
}

TEST(TrainingStep, BuffersMoveOncePerStepAndLearningLeavesThem) {
  const Module module = makeModule(kDropoutForward);
  TrainingStep step(module, {at::ones({8, 4})}, options());
  EXPECT_EQ(step.run("forward", true).buffers.at(0).item<float>(), 1);
  EXPECT_EQ(step.run("forward", true).buffers.at(0).item<float>(), 2);
  EXPECT_EQ(module.attr("calls").toInt(), 2);
}

TEST(TrainingStep, LeavesTheCallersRandomStateAndNoGradients) {
  const Module module = makeModule(kDropoutForward);
  at::manual_seed(3);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(3);
  TrainingStep step(module, {at::ones({8, 4})}, options());
  step.run("forward", false);
  EXPECT_TRUE(at::rand({4}).equal(expected));
  EXPECT_FALSE(module.attr("weight").toTensor().grad().defined());
}

TEST(TrainingStep, ModuleStatePutsBackBuffersAttributesAndGradients) {
  Module module = makeModule(kDropoutForward);
  const at::Tensor weight = module.attr("weight").toTensor();
  weight.mutable_grad() = at::full({4, 4}, 2.0F);
  const at::Tensor count = module.attr("count").toTensor();
  ModuleState state(module);
  TrainingStep step(module, {at::ones({8, 4})}, options());
  for (int i = 0; i < 2; ++i) {
    step.run("forward", false);
    state.restore();
    EXPECT_EQ(count.item<float>(), 0);
    EXPECT_TRUE(module.attr("count").toTensor().is_same(count));
    EXPECT_EQ(module.attr("calls").toInt(), 0);
    EXPECT_EQ(weight.grad()[0][0].item<float>(), 2);
  }
}

TEST(TrainingStep, PeakIsAboveWhatWasAliveBefore) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.sigmoid(torch.matmul(x, self.weight))
)");
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  TrainingStep step(module, {at::ones({4096, 4})}, options());
  constexpr int64_t kActivation = 4096 * 4 * 4;
  // Forward: product and result at once. Backward: result, the product's gradient and the weight's.
  const int64_t peak = step.run("forward", false).peak_bytes;
  EXPECT_GE(peak, 2 * kActivation);
  EXPECT_LT(peak, 2 * kActivation + 4096);
  EXPECT_EQ(step.run("forward", true).peak_bytes, peak) << "keeping results changes no peak";
}

TEST(TrainingStep, EveryDifferentiableTensorOfTheOutputGetsAGradient) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tuple[Tensor, List[Tensor], Dict[str, Tensor], Tensor, int]:
    y = torch.matmul(x, self.weight)
    return y, [y * 2, x], {"b": y.sum(), "a": y.relu()}, torch.argmax(y, 1), 3
)");
  TrainingStep step(module, {at::ones({2, 4})}, options());
  const StepOutcome outcome = step.run("forward", true);
  EXPECT_EQ(outcome.outputs.size(), 6U);   // with x and argmax, which need no gradient
  EXPECT_EQ(outcome.outputs[3].dim(), 0);  // insertion order of the dict
  EXPECT_TRUE(outcome.gradients.at(0).defined());
}

TEST(TrainingStep, InputsThatRequireGradHaveGradients) {
  const Module module = makeModule(kDropoutForward);
  const at::Tensor x = at::ones({8, 4}).set_requires_grad(true);
  TrainingStep step(module, {x}, options());
  const StepOutcome outcome = step.run("forward", true);
  ASSERT_EQ(outcome.gradients.size(), 2U);
  EXPECT_EQ(outcome.gradients[1].sizes(), x.sizes());
  EXPECT_FALSE(x.grad().defined()) << "the caller's input is copied";
}

TEST(TrainingStep, InputsWrittenInPlaceAreSetBack) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    x.mul_(2.0)
    return torch.matmul(x, self.weight)
)");
  const at::Tensor x = at::ones({2, 4});
  TrainingStep step(module, {x}, options());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(step.run("forward", true).outputs.at(0)[0][0].item<float>(), 4);
  }
  EXPECT_EQ(x[0][0].item<float>(), 1);
}

TEST(TrainingStep, ComplexOutputs) {
  const Module module = makeModule(
      "def forward(self, x: Tensor) -> Tensor:\n    return torch.matmul(x, self.weight)\n",
      at::kComplexFloat);
  TrainingStep step(module, {at::ones({2, 4}, at::kComplexFloat)}, options());
  EXPECT_TRUE(step.run("forward", true).gradients.at(0).is_complex());
}

class CrossEntropy : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(CrossEntropy, TakesLogits) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
    y = x * self.weight.sum()
    return y.sum(), y
)");
  StepOptions with_loss = options();
  with_loss.loss = StepOptions::Loss::kCrossEntropy;
  const at::Tensor x = at::arange(c10::multiply_integers(GetParam()), at::kFloat).view(GetParam());
  TrainingStep step(module, {x}, with_loss);
  const StepOutcome outcome = step.run("forward", true);
  EXPECT_NE(outcome.gradients.at(0)[0][0].item<float>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropy,
                         ::testing::Values(std::vector<int64_t>{5, 3},
                                           std::vector<int64_t>{2, 6, 3},
                                           std::vector<int64_t>{2, 3, 4, 5}));

TEST(TrainingStep, NothingToTrainIsSaid) {
  const Module module = makeModule("def forward(self, x: Tensor) -> Tensor:\n    return x + 1\n");
  TrainingStep step(module, {at::ones({2})}, options());
  try {
    step.run("forward", false);
    FAIL() << "no error";
  } catch (const StepError& error) {
    EXPECT_NE(std::string(error.what()).find("nothing to train"), std::string::npos);
  }
}

TEST(TrainingStep, CrossEntropyWithoutLogitsIsSaid) {
  const Module module =
      makeModule("def forward(self, x: Tensor) -> Tensor:\n    return (x * self.weight).sum()\n");
  StepOptions with_loss = options();
  with_loss.loss = StepOptions::Loss::kCrossEntropy;
  TrainingStep step(module, {at::ones({4})}, with_loss);
  EXPECT_THROW(step.run("forward", false), StepError);
}

TEST(TrainingStep, LearningThatFailsLeavesBuffers) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    self.count.add_(1)
    return torch.matmul(x, self.weight)
)");
  TrainingStep step(module, {at::ones({2, 3})}, options());
  EXPECT_ANY_THROW(step.run("forward", false));
  EXPECT_EQ(module.attr("count").toTensor().item<float>(), 0);
}

}  // namespace
}  // namespace remat
