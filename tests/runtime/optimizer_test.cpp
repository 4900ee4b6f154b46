// A C++ training program: a file, its parameters in LibTorch's own optimiser, twenty steps.

#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/optim/sgd.h>

#include <sstream>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class OptimizerTest : public RuntimeTest {};

/// One weight at both ends, and a layer that learns nothing.
Module model() {
  Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(torch.linear(x, self.w))
    h = torch.sigmoid(torch.linear(h, self.frozen))
    return torch.linear(torch.tanh(torch.linear(h, self.v)), self.w)
)",
                             {{"w", randomTensor({16, 16})},
                              {"v", randomTensor({16, 16})},
                              {"frozen", randomTensor({16, 16})}});
  module.attr("frozen").toTensor().set_requires_grad(false);
  return module;
}

Module throughFile(const Module& module) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

std::vector<double> losses(Module module, int steps) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  const at::Tensor x = at::arange(128, at::kFloat).mul(0.3).sin().view({8, 16});
  std::vector<double> curve;
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    const at::Tensor loss = module.forward({x}).toTensor().square().mean();
    loss.backward();
    optimizer.step();
    curve.push_back(loss.item<double>());
  }
  return curve;
}

TEST_F(OptimizerTest, TwentyStepsOfSgdGiveTheSameLosses) {
  constexpr int kSteps = 20;
  const Module plain = model();
  const Module remat = throughFile(optimized(plain));
  std::vector<std::string> names;
  std::vector<std::string> expected_names;
  for (const auto& parameter : plain.named_parameters()) expected_names.push_back(parameter.name);
  for (const auto& parameter : remat.named_parameters()) names.push_back(parameter.name);
  EXPECT_EQ(names, expected_names);
  EXPECT_FALSE(remat.attr("frozen").toTensor().requires_grad());
  replayedNodes();
  const std::vector<double> expected = losses(throughFile(plain), kSteps);
  EXPECT_EQ(losses(remat, kSteps), expected);
  EXPECT_GT(replayedNodes(), 0);
  EXPECT_LT(expected.back(), expected.front());
}

TEST_F(OptimizerTest, ATrainedModelIsSavedAndGoesOn) {
  constexpr int kSteps = 5;
  const Module plain = throughFile(model());
  const Module remat = throughFile(optimized(plain));
  losses(plain, kSteps);
  losses(remat, kSteps);
  EXPECT_EQ(losses(throughFile(remat), kSteps), losses(throughFile(plain), kSteps));
}

}  // namespace
}  // namespace remat::runtime::test
