#include "passes/frozen_layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>

#include "ir/region_order.h"
#include "passes/prepare.h"

namespace remat {
namespace {

/// Names of the aten operators that belong to frozen layers, in order.
std::string frozen(const std::string& body, bool input_grad = false) {
  torch::jit::Module module("Sample");
  const auto parameter = [&](const char* name, bool learns) {
    module.register_parameter(name, at::ones({4, 4}).set_requires_grad(learns), false);
  };
  parameter("frozen", false);
  parameter("learning", true);
  module.register_buffer("buffer", at::ones({4, 4}));
  module.define("def forward(self, x: Tensor) -> Tensor:\n" + body);
  const auto graph = prepareGraph(module, "forward");
  const at::Tensor x = at::ones({4, 4}).set_requires_grad(input_grad);
  const std::vector<char> flags = frozenNodes(*graph, module, {x});
  const ir::RegionOrder order = ir::regionOrder(*graph);
  EXPECT_EQ(flags.size(), order.nodes.size());
  std::string names;
  for (size_t i = 0; i < flags.size(); ++i) {
    const torch::jit::Node& node = *order.nodes[i].node;
    if (flags[i] != 0 && node.kind().is_aten())
      names += std::string(node.kind().toUnqualString()) + " ";
  }
  return names;
}

TEST(FrozenLayersTest, LayersBeforeTheFirstThatLearnsAreFrozen) {
  EXPECT_EQ(frozen("    h = torch.tanh(torch.matmul(x, self.frozen))\n"
                   "    return torch.sin(torch.mm(h, self.learning))\n"),
            "matmul tanh ");
}

TEST(FrozenLayersTest, LayersBehindOneThatLearnsAreNot) {
  EXPECT_EQ(frozen("    return torch.mm(torch.mm(x, self.learning), self.frozen)\n"), "");
}

TEST(FrozenLayersTest, AnInputThatRequiresGradLearns) {
  EXPECT_EQ(frozen("    return torch.mm(x, self.frozen).sin() + self.learning\n"), "mm sin ");
  EXPECT_EQ(frozen("    return torch.mm(x, self.frozen).sin() + self.learning\n", true), "");
}

TEST(FrozenLayersTest, WhatReadsNoParameterMayRunAgain) {
  EXPECT_EQ(frozen("    return torch.mm(torch.sin(x * self.buffer), self.learning)\n"), "");
}

TEST(FrozenLayersTest, OfBranchesNothingIsKnown) {
  EXPECT_EQ(frozen("    h = torch.mm(x, self.frozen)\n"
                   "    if bool(x.sum() > 0):\n        h = torch.cos(h)\n"
                   "    return torch.mm(torch.sin(h), self.learning)\n"),
            "mm cos ");
}

}  // namespace
}  // namespace remat
