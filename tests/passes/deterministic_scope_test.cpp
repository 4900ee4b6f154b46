#include "passes/deterministic_scope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include "passes/training_step.h"

namespace remat {
namespace {

TEST(DeterministicScopeTest, TurnsTheFlagsOnAndPutsThemBack) {
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  {
    const DeterministicScope scope(true);
    EXPECT_TRUE(context.deterministicAlgorithms());
    EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
    EXPECT_TRUE(context.deterministicCuDNN());
    EXPECT_FALSE(context.benchmarkCuDNN()) << "two calls could choose two algorithms";
  }
  EXPECT_TRUE(context.benchmarkCuDNN());
  EXPECT_FALSE(context.deterministicCuDNN());
  EXPECT_TRUE(context.deterministicAlgorithmsWarnOnly());
  {
    const DeterministicScope scope(false);
    EXPECT_TRUE(context.benchmarkCuDNN());
  }
  context.setBenchmarkCuDNN(false);
  context.setDeterministicAlgorithms(false, /*warn_only=*/false);
}

/// Writes with repeated indices have no deterministic form.
TEST(DeterministicScopeTest, AStepRunsUnderIt) {
  torch::jit::Module module("Sample");
  module.register_parameter("weight", at::ones({8}).set_requires_grad(true), /*is_buffer=*/false);
  module.define(R"(
def forward(self, i: Tensor) -> Tensor:
    return torch.put(self.weight * 2, i, self.weight)
)");
  StepOptions options;
  const at::Tensor index = at::zeros({8}, at::kLong);
  EXPECT_NO_THROW(TrainingStep(module, {index}, options).run("forward", false));
  options.deterministic = true;
  EXPECT_ANY_THROW(TrainingStep(module, {index}, options).run("forward", false));
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_EQ(lossName(options), "random gradients by deterministic algorithms");
}

TEST(DeterministicScopeTest, NamesWhatMayDifferOnAGpu) {
  ir::Profile profile;
  profile.nodes.resize(3);
  profile.nodes[0].op = "aten::conv2d";
  profile.nodes[1].op = "aten::relu";
  profile.nodes[2].op = "aten::conv2d";
  profile.device = "cpu";
  EXPECT_TRUE(nondeterministicOps(profile).empty());
  profile.device = "cuda:0";
  EXPECT_EQ(nondeterministicOps(profile), std::vector<std::string>{"aten::conv2d"});
}

}  // namespace
}  // namespace remat
