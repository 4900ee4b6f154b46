#include "ir/region_order.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

namespace remat::ir {
namespace {

std::vector<std::pair<std::string, NodeForm>> formsOf(torch::jit::Graph& graph) {
  std::vector<std::pair<std::string, NodeForm>> forms;
  for (const OrderedNode& ordered : regionOrder(graph).nodes) {
    forms.emplace_back(ordered.node->kind().toUnqualString(), ordered.form);
  }
  return forms;
}

TEST(RegionOrder, EntersBranchesAndNotLoops) {
  torch::jit::Graph graph;
  torch::jit::parseIR(R"IR(
graph(%x : Tensor, %c : bool, %n : int):
  %y : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::relu(%x)
      -> (%a)
    block1():
      %b : Tensor = aten::tanh(%x)
      -> (%b)
  %z : Tensor = prim::Loop(%n, %c, %y)
    block0(%i : int, %d : Tensor):
      %e : Tensor = aten::sigmoid(%d)
      -> (%c, %e)
  return (%z)
)IR",
                      &graph);
  EXPECT_EQ(formsOf(graph),
            (std::vector<std::pair<std::string, NodeForm>>{{"If", NodeForm::kBranch},
                                                           {"relu", NodeForm::kOperator},
                                                           {"tanh", NodeForm::kOperator},
                                                           {"Loop", NodeForm::kOpaque}}));
  const RegionOrder order = regionOrder(graph);
  // x, c, n, then what the four nodes make.
  EXPECT_EQ(order.values.size(), 7);
  EXPECT_EQ(order.value_ids.at(graph.inputs()[2]), 2);
  EXPECT_EQ(order.value_ids.at(graph.outputs()[0]), 6);
  EXPECT_EQ(order.node_ids.at(graph.outputs()[0]->node()), 3);
}

TEST(RegionOrder, AWithStatementIsOneNode) {
  torch::jit::Graph graph;
  torch::jit::parseIR(R"IR(
graph(%x : Tensor, %guard : Tensor, %c : bool):
  %a : Tensor = aten::relu(%x)
  %entered : Tensor = prim::Enter(%guard)
  %b : Tensor = prim::If(%c)
    block0():
      %d : Tensor = aten::sigmoid(%a)
      -> (%d)
    block1():
      -> (%a)
  %inner : Tensor = prim::Enter(%guard)
  %left : Tensor = prim::Exit(%guard)
  %left_too : Tensor = prim::Exit(%guard)
  %e : Tensor = aten::exp(%b)
  return (%e)
)IR",
                      &graph);
  std::vector<std::string> inside;
  bool after = false;
  for (const auto& [kind, form] : formsOf(graph)) {
    if (form == NodeForm::kInside) inside.push_back(kind);
    EXPECT_NE(kind, "sigmoid") << "what is inside is not entered";
    if (kind == "exp") after = form == NodeForm::kOperator;
  }
  EXPECT_TRUE(after);
  EXPECT_EQ(inside, (std::vector<std::string>{"If", "Enter", "Exit", "Exit"}));
}

}  // namespace
}  // namespace remat::ir
