#include "passes/legality.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/script.h>

#include "passes/prepare.h"
#include "passes/replay_table.h"

namespace remat {
namespace {

using torch::jit::Graph;
using torch::jit::Module;

const torch::jit::RegisterOperators kOps({
    torch::jit::Operator(
        "legality_test::unknown(Tensor x) -> Tensor", [](torch::jit::Stack&) {},
        c10::AliasAnalysisKind::FROM_SCHEMA),
    torch::jit::Operator(
        "legality_test::conservative(Tensor x) -> Tensor", [](torch::jit::Stack&) {},
        c10::AliasAnalysisKind::CONSERVATIVE),
});

std::vector<std::string> reasonsOf(const Legality& legality, const std::string& op) {
  std::vector<std::string> reasons;
  for (const ir::Remark& remark : legality.remarks()) {
    if (remark.op == op) reasons.emplace_back(ir::reasonName(remark.reason));
  }
  return reasons;
}

bool isReplayable(const Legality& legality, const std::string& op) {
  bool found = false;
  for (size_t i = 0; i < legality.size(); ++i) {
    if (legality.verdict(static_cast<int32_t>(i)).op != op) continue;
    found = true;
    if (!legality.isReplayable(static_cast<int32_t>(i))) return false;
  }
  EXPECT_TRUE(found) << op << " is not in the graph";
  return found;
}

Legality judge(const Module& module, LegalityOptions options = {}) {
  options.module = &module;
  return analyzeLegality(prepareGraph(module, "forward"), options);
}

Module normModel(const std::string& code) {
  Module norm("Norm");
  norm.register_buffer("mean", at::zeros({4}));
  norm.register_buffer("var", at::ones({4}));
  norm.register_buffer("count", at::zeros({}, at::kLong));
  norm.register_attribute("training", c10::BoolType::get(), true);
  norm.define(R"(
def forward(self, x):
    if self.training:
        self.count.add_(1)
    return torch.batch_norm(x, None, None, self.mean, self.var, self.training, 0.1, 1e-5, False)
)");
  Module model("Model");
  model.register_module("bn", norm);
  model.register_parameter("scale", at::ones({4}), false);
  model.register_attribute("cache", c10::TensorType::get(), at::ones({4}));
  model.define(code);
  return model;
}

TEST(Legality, ACounterRefusesNobodyElse) {
  const Legality legality = judge(normModel(R"(
def forward(self, x):
    h = self.bn.forward(torch.sigmoid(x * self.scale))
    return torch.tanh(h) + 1
)"));
  EXPECT_TRUE(isReplayable(legality, "aten::batch_norm"));
  EXPECT_TRUE(isReplayable(legality, "aten::sigmoid"));
  EXPECT_TRUE(isReplayable(legality, "aten::tanh"));
  EXPECT_TRUE(isReplayable(legality, "aten::mul"));
  EXPECT_EQ(reasonsOf(legality, "aten::add_"), std::vector<std::string>{"in-place-write"});
}

TEST(Legality, ReadersOfARunningStatisticAreRefused) {
  const Legality legality = judge(normModel(R"(
def forward(self, x):
    h = torch.sigmoid(x - self.bn.mean)
    return self.bn.forward(torch.tanh(h)) + 1
)"));
  EXPECT_EQ(reasonsOf(legality, "aten::sub"), std::vector<std::string>{"read-after-write"});
  EXPECT_TRUE(isReplayable(legality, "aten::tanh"));
  EXPECT_TRUE(isReplayable(legality, "aten::batch_norm"));
}

TEST(Legality, TwoNamesOfOneTensorAreOne) {
  Module model("Model");
  const at::Tensor shared = at::ones({4});
  model.register_buffer("one", shared);
  model.register_buffer("other", shared);
  model.define(R"(
def forward(self, x):
    h = torch.tanh(x * self.one)
    self.other.mul_(2)
    return h + 1
)");
  EXPECT_EQ(reasonsOf(judge(model), "aten::mul"), std::vector<std::string>{"read-after-write"});
}

TEST(Legality, WhatGoesIntoAnAttributeEscapes) {
  const Legality legality = judge(normModel(R"(
def forward(self, x):
    h = torch.sigmoid(x)
    self.cache = torch.tanh(h)
    return torch.exp(h) + 1
)"));
  EXPECT_EQ(reasonsOf(legality, "aten::tanh"), std::vector<std::string>{"escaping-alias"});
  EXPECT_EQ(reasonsOf(legality, "prim::SetAttr"), std::vector<std::string>{"side-effect"});
  EXPECT_TRUE(isReplayable(legality, "aten::sigmoid"));
  EXPECT_TRUE(isReplayable(legality, "aten::exp"));
}

TEST(Legality, AWriteInsideALoopCounts) {
  const Legality legality = judge(normModel(R"(
def forward(self, x, n: int):
    h = torch.sigmoid(x)
    t = torch.tanh(h)
    for i in range(n):
        h.mul_(0.5)
    return torch.exp(h) + t
)"));
  EXPECT_EQ(reasonsOf(legality, "aten::sigmoid"), std::vector<std::string>{"read-after-write"});
  EXPECT_EQ(reasonsOf(legality, "aten::tanh"), std::vector<std::string>{"read-after-write"});
  EXPECT_TRUE(isReplayable(legality, "aten::exp"));
  EXPECT_EQ(reasonsOf(legality, "prim::Loop"), std::vector<std::string>{"unknown-op"});
}

TEST(Legality, ElementsOfAListAreApart) {
  const Legality legality = judge(normModel(R"(
def forward(self, x):
    a = torch.sigmoid(x)
    b = torch.tanh(x)
    h = torch.cat([a, b])
    v = b[0]
    v.mul_(2)
    return torch.exp(h) + b.sum()
)"));
  EXPECT_TRUE(isReplayable(legality, "aten::sigmoid"));
  EXPECT_EQ(reasonsOf(legality, "aten::tanh"), std::vector<std::string>{"read-after-write"});
  EXPECT_EQ(reasonsOf(legality, "aten::cat"), std::vector<std::string>{"read-after-write"});
}

TEST(Legality, CustomOpsNeedTheUsersWord) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(R"IR(
graph(%x : Tensor):
  %h : Tensor = aten::sigmoid(%x)
  %a : Tensor = legality_test::unknown(%h)
  %b : Tensor = aten::tanh(%a)
  %c : Tensor = legality_test::conservative(%b)
  %y : Tensor = aten::exp(%c)
  return (%y)
)IR",
                      graph.get());
  const Legality refused = analyzeLegality(graph, {});
  EXPECT_EQ(reasonsOf(refused, "legality_test::unknown"), std::vector<std::string>{"unknown-op"});
  EXPECT_TRUE(isReplayable(refused, "aten::sigmoid"));
  // Whoever declares nothing may have kept or written its input.
  EXPECT_FALSE(isReplayable(refused, "aten::tanh"));
  EXPECT_FALSE(isReplayable(refused, "legality_test::conservative"));
  LegalityOptions options;
  options.allow_ops = {"legality_test::unknown"};
  EXPECT_TRUE(isReplayable(analyzeLegality(graph, options), "legality_test::unknown"));
}

TEST(Legality, PythonOpsAreRefusedByName) {
  Graph graph;
  auto* node = graph.create(c10::prim::PythonOp, {graph.addInput("x")});
  graph.insertNode(node);
  graph.registerOutput(node->output());
  const Legality legality = analyzeLegality(graph.copy(), {});
  ASSERT_FALSE(legality.verdict(0).refusals.empty());
  EXPECT_NE(legality.verdict(0).refusals[0].explanation.find("prim::PythonOp"), std::string::npos);
  EXPECT_FALSE(legality.isReplayable(0));
}

TEST(Legality, RemarksSayWhatIsSaved) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(R"IR(
graph(%x : Tensor):
  %h : Tensor = aten::sigmoid(%x)
  %e : Tensor = aten::exp_(%h)
  %y : Tensor = aten::tanh(%e)
  return (%y)
)IR",
                      graph.get());
  const Legality legality = analyzeLegality(graph, {});
  ir::Profile profile;
  profile.nodes.resize(3);
  profile.values.resize(4);
  profile.storages = {{1000, ir::StorageRole::kValue}, {4000, ir::StorageRole::kOutput}};
  for (int32_t i = 0; i < 3; ++i) {
    profile.nodes[i].program_index = i;
    profile.nodes[i].outputs = {i + 1};
  }
  profile.values[1].storages = {0};
  profile.values[2].storages = {0};
  profile.values[3].storages = {1};
  EXPECT_TRUE(legality.remarks(profile).empty()) << "nothing is saved, nobody wants to know";
  profile.slots = {{1, 2, 0}};
  const std::vector<ir::Remark> remarks = legality.remarks(profile);
  ASSERT_EQ(remarks.size(), 2);
  EXPECT_EQ(remarks[0].op, "aten::sigmoid");
  EXPECT_EQ(remarks[0].saved_bytes, 1000);
  EXPECT_EQ(remarks[1].reason, ir::Reason::kInPlaceWrite);
}

TEST(Legality, TheMethodsOutputIsNoNews) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(R"IR(
graph(%x : Tensor):
  %dim : int = prim::Constant[value=0]()
  %h : Tensor = aten::sigmoid(%x)
  %y : Tensor = aten::tanh(%h)
  %s : Tensor = aten::relu(%h)
  %v : Tensor = aten::unsqueeze(%s, %dim)
  %out : (Tensor, Tensor) = prim::TupleConstruct(%y, %v)
  return (%out)
)IR",
                      graph.get());
  const Legality legality = analyzeLegality(graph, {});
  ir::Profile profile;
  profile.storages.push_back({1000, ir::StorageRole::kOutput});
  for (size_t id = 0; id < legality.size(); ++id) {
    const auto& verdict = legality.verdict(static_cast<int32_t>(id));
    if (verdict.op != "aten::tanh" && verdict.op != "aten::relu") continue;
    EXPECT_FALSE(verdict.replayable);
    ir::NodeProfile node;
    node.program_index = static_cast<int32_t>(id);
    node.outputs = {static_cast<int32_t>(profile.values.size())};
    profile.nodes.push_back(node);
    profile.values.emplace_back().storages = {0};
  }
  profile.slots = {{0, 0, 0}};
  const std::vector<ir::Remark> remarks = legality.remarks(profile);
  ASSERT_EQ(remarks.size(), 1);
  EXPECT_EQ(remarks[0].op, "aten::relu");
  EXPECT_EQ(remarks[0].reason, ir::Reason::kEscapingAlias);
}

TEST(ReplayTable, EveryGroupSaysWhy) {
  EXPECT_STREQ(replayReason("legality_test::unknown"), nullptr);
  EXPECT_NE(replayReason("aten::conv2d"), nullptr);
  EXPECT_TRUE(makesFreshTensors("aten::conv2d"));
  EXPECT_FALSE(makesFreshTensors("aten::view"));
  EXPECT_FALSE(makesFreshTensors("aten::dropout"));
  EXPECT_FALSE(makesFreshTensors("aten::type_as"));
}

/// A listed op that writes, draws or has side effects would be a mistake in the list.
TEST(ReplayTable, HoldsOnlyOpsThatExistAndAreHarmless) {
  int unknown = 0;
  for (const std::string& op : replayableOps()) {
    if (op.rfind("aten::", 0) != 0) continue;
    const auto& overloads = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(op));
    if (overloads.empty()) {
      ++unknown;
      ADD_FAILURE() << op << " does not exist";
    }
    if (!makesFreshTensors(op)) continue;
    for (const auto& overload : overloads) {
      if (overload->schema().is_mutable()) continue;  // out= variants are refused on the node
      for (const auto& result : overload->schema().returns()) {
        EXPECT_EQ(result.alias_info(), nullptr) << op << " is listed as fresh and makes a view";
      }
    }
  }
  EXPECT_EQ(unknown, 0);
}

}  // namespace
}  // namespace remat
