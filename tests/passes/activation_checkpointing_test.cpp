// What the pass on one graph takes, and what it refuses and why.

#include "passes/activation_checkpointing.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <limits>

#include "passes/register_pass.h"

namespace remat {
namespace {

using testing::HasSubstr;
using torch::jit::Graph;
using torch::jit::Module;

/// A norm that counts its batches, as nn.BatchNorm2d does, between matrix products.
Module sample(const std::string& name) {
  Module inner(name + "Inner");
  inner.register_buffer("batches", at::zeros({}, at::kLong));
  inner.register_buffer("mean", at::zeros({64}));
  inner.register_buffer("var", at::ones({64}));
  inner.register_attribute("training", c10::BoolType::get(), true);
  inner.define(R"(
def forward(self, x: Tensor) -> Tensor:
    if self.training:
        self.batches.add_(1)
    return torch.batch_norm(x, None, None, self.mean, self.var, self.training, 0.1, 1e-5, False)
)");
  Module module(name);
  module.register_parameter("w", at::ones({64, 64}).set_requires_grad(true), /*is_buffer=*/false);
  module.register_module("norm", inner);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.gelu(self.norm.forward(torch.matmul(x, self.w)))
    return torch.matmul(torch.gelu(torch.tanh(h)), self.w)
)");
  return module;
}

at::Tensor rows() { return at::ones({256, 64}); }

OptimizeOptions lowest() {
  OptimizeOptions options;
  options.budget.kind = Budget::Kind::kMinimum;
  return options;
}

std::shared_ptr<Graph> graphOf(const Module& module, bool inlined = true) {
  std::shared_ptr<Graph> graph = module.get_method("forward").graph()->copy();
  if (inlined) torch::jit::Inline(*graph);
  return graph;
}

template <typename Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const RematError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(ActivationCheckpointingTest, ArgumentsStandInForTypes) {
  const Module module = sample("Arguments");
  std::shared_ptr<Graph> graph = graphOf(module);
  EXPECT_THAT(refusal([&] { makePass(lowest())(graph); }), HasSubstr("or give arguments"));
  makePass(lowest(), {module._ivalue(), rows()})(graph);
  EXPECT_THAT(graph->toString(), HasSubstr("remat::region"));
  EXPECT_EQ(module.buffers().size(), 3);
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.scalar_type() == at::kLong) EXPECT_EQ(buffer.item<int64_t>(), 0);
  }
}

TEST(ActivationCheckpointingTest, AGraphsTypesSayWhichInputsTrain) {
  const auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(R"IR(
graph(%x : Float(256, 64, strides=[64, 1], requires_grad=1, device=cpu)):
  %none : str = prim::Constant[value="none"]()
  %a : Tensor = aten::tanh(%x)
  %b : Tensor = aten::gelu(%a, %none)
  %c : Tensor = aten::sigmoid(%b)
  %d : Tensor = aten::gelu(%c, %none)
  return (%d)
)IR",
                      graph.get());
  EXPECT_TRUE(ActivationCheckpointing(graph, lowest()).changed);
}

TEST(ActivationCheckpointingTest, WhatIsNoGraphToWorkOnIsRefused) {
  EXPECT_THAT(refusal([] { ActivationCheckpointing(nullptr, lowest()); }), HasSubstr("null"));
  const Module module = sample("Calls");
  EXPECT_THAT(refusal([&] {
                ActivationCheckpointing(graphOf(module, /*inlined=*/false), lowest(),
                                        {module._ivalue(), rows()});
              }),
              HasSubstr("calls the method forward, which is not inlined"));
}

TEST(ActivationCheckpointingTest, ArgumentsThatDontFitAreNamed) {
  const Module module = sample("Swapped");
  const auto refused = [&](const std::vector<c10::IValue>& arguments) {
    return refusal([&] { ActivationCheckpointing(graphOf(module), lowest(), arguments); });
  };
  EXPECT_THAT(refused({rows(), module._ivalue()}), HasSubstr("argument 0, for %self"));
  EXPECT_THAT(refused({module._ivalue(), 3}), HasSubstr("is a int, and the graph takes a Tensor"));
  EXPECT_THAT(refused({rows()}), HasSubstr("takes 2 arguments, self included, and 1 were given"));
  EXPECT_THAT(refused({module._ivalue(), at::ones({3, 5})}),
              HasSubstr("own training step fails, before anything is changed"));
}

TEST(ActivationCheckpointingTest, OptionsThatMakeNoSenseAreRefused) {
  const Module module = sample("Options");
  const auto refused = [&](const std::function<void(OptimizeOptions&)>& change) {
    OptimizeOptions options;
    change(options);
    const std::string direct = refusal([&] {
      ActivationCheckpointing(graphOf(module), options, {module._ivalue(), rows()});
    });
    EXPECT_EQ(refusal([&] { optimize(module, {rows()}, options); }), direct);
    EXPECT_EQ(refusal([&] { registerPass(options); }), direct);
    return direct;
  };
  for (const double share : {0.0, -0.5, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(refused([&](OptimizeOptions& options) { options.budget.fraction = share; }),
                HasSubstr("no share of the original's peak"))
        << share;
  }
  EXPECT_THAT(refused([](OptimizeOptions& options) { options.budget.kind = Budget::Kind::kBytes; }),
              HasSubstr("no memory at all"));
  EXPECT_THAT(refused([](OptimizeOptions& options) { options.step.autocast = "int8"; }),
              HasSubstr("autocast to 'int8'"));
  EXPECT_THAT(refused([](OptimizeOptions& options) { options.reserve_bytes = -1; }),
              HasSubstr("below 0"));
}

}  // namespace
}  // namespace remat
