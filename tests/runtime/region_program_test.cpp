// What a region is compiled to: what is kept, and where values die.

#include "runtime/region_program.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "runtime/execution.h"
#include "runtime/memory_statistics.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

using Names = std::set<std::string>;

std::shared_ptr<const RegionProgram> compiled(const std::string& ir) {
  auto graph = std::make_shared<torch::jit::Graph>();
  std::unordered_map<std::string, torch::jit::Value*> values;
  torch::jit::parseIR(ir, graph.get(), values);
  for (const auto& [name, value] : values) {
    if (std::isdigit(name[0]) == 0) {
      value->setDebugName(name);
    }
  }
  return compileRegion(*graph);
}

Names names(const RegionProgram& program, c10::ArrayRef<int32_t> values) {
  Names result;
  for (const int32_t value : values) {
    result.insert(program.names[value]);
  }
  return result;
}

int32_t valueNamed(const RegionProgram& program, const std::string& name) {
  for (size_t v = 0; v < program.valueCount(); ++v) {
    if (program.names[v] == name) {
      return static_cast<int32_t>(v);
    }
  }
  ADD_FAILURE() << "no value " << name;
  return 0;
}

bool isKept(const RegionProgram& program, const std::string& name) {
  return program.kept[valueNamed(program, name)] != 0;
}
bool isBoundary(const RegionProgram& program, const std::string& name) {
  return program.boundary[valueNamed(program, name)] != 0;
}
const ProgramNode& makerOf(const RegionProgram& program, const std::string& name) {
  return program.nodes[program.producer[valueNamed(program, name)]];
}
/// The values that end as boundaries at the node that makes `name`.
Names endingAt(const RegionProgram& program, const std::string& name) {
  return names(program, makerOf(program, name).boundaries_ending);
}

TEST(RegionProgram, KeepsArgumentsConstantsMarksAndWhatHoldsNoTensors) {
  const auto program = compiled(R"(
graph(%x : Tensor, %n : int):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::tanh(%x)
  %10 : Tensor = aten::sigmoid(%a)
  %b : Tensor = remat::keep(%10)
  %size : int = aten::size(%b, %n)
  %c : Tensor = aten::add(%b, %b, %one)
  %d : Tensor = aten::exp(%c)
  %list : Tensor[] = prim::ListConstruct(%d, %a)
  %e : Tensor = aten::cat(%list, %one)
  %f : Tensor = aten::mul(%e, %size)
  %g : Tensor = aten::exp(%f)
  return (%g))");
  for (const char* name : {"x", "n", "one", "b", "size"}) {
    EXPECT_TRUE(isKept(*program, name)) << name;
  }
  for (const char* name : {"a", "c", "d", "list", "e", "f"}) {
    EXPECT_FALSE(isKept(*program, name)) << name;
  }
  EXPECT_TRUE(isKept(*program, "g"));  // leaves the region
  for (const char* name : {"x", "b", "size"}) {
    EXPECT_TRUE(isBoundary(*program, name)) << name;
  }
  EXPECT_FALSE(isBoundary(*program, "n"));    // only aten::size reads it
  EXPECT_FALSE(isBoundary(*program, "one"));  // part of the program
}

TEST(RegionProgram, NodesThatMayNotBeReplayedKeepTheirOutputs) {
  const auto program = compiled(R"(
graph(%x : Tensor, %w : Tensor, %p : float):
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %noise : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)
  %true : bool = prim::Constant[value=1]()
  %mask : Tensor = remat::dropout_mask(%x, %p, %true)
  %y : Tensor = remat::dropout(%x, %mask, %p, %true)
  %z : Tensor = aten::mul(%noise, %y)
  %v : Tensor = aten::mul(%z, %z)
  %written : Tensor = aten::add_(%v, %noise, %one)
  %u : Tensor = aten::tanh(%v)
  %r : Tensor = aten::exp(%u)
  return (%r))");
  for (const char* name : {"noise", "written", "v"}) {
    EXPECT_TRUE(isKept(*program, name)) << name;
  }
  for (const char* name : {"mask", "y", "z", "u"}) {
    EXPECT_FALSE(isKept(*program, name)) << name;
  }
  EXPECT_TRUE(makerOf(*program, "mask").recomputable);
  EXPECT_FALSE(makerOf(*program, "noise").recomputable);
}

TEST(RegionProgram, ListsThatAreWrittenAreKept) {
  const auto program = compiled(R"(
graph(%x : Tensor, %i : int):
  %a : Tensor = aten::tanh(%x)
  %tensors : Tensor[] = prim::ListConstruct(%a)
  %t1 : Tensor[] = aten::append(%tensors, %x)
  %first : Tensor = aten::__getitem__(%tensors, %i)
  %pair : (Tensor, Tensor) = prim::TupleConstruct(%a, %x)
  %pairs : (Tensor, Tensor)[] = prim::ListConstruct(%pair)
  %t2 : (Tensor, Tensor)[] = aten::append(%pairs, %pair)
  %read : (Tensor, Tensor)[] = prim::ListConstruct(%pair)
  %p : (Tensor, Tensor) = aten::__getitem__(%read, %i)
  %index : Tensor?[] = prim::ListConstruct(%a)
  %b : Tensor = aten::index(%first, %index)
  %r : Tensor = aten::exp(%b)
  return (%r))");
  for (const char* name : {"tensors", "pairs"}) {
    EXPECT_TRUE(isKept(*program, name)) << name;
  }
  for (const char* name : {"read", "index", "pair"}) {
    EXPECT_FALSE(isKept(*program, name)) << name;
  }
}

TEST(RegionProgram, MarkedValuesAreSpokenOfByTheMarksName) {
  const auto program = compiled(R"(
graph(%x : Tensor):
  %0 : Tensor = aten::tanh(%x)
  %layer_tanh : Tensor = remat::keep(%0)
  %y : Tensor = aten::exp(%layer_tanh)
  return (%y))");
  EXPECT_EQ(program->described[valueNamed(*program, "x")], "x (an argument)");
  const int32_t marked = valueNamed(*program, "layer_tanh");
  EXPECT_EQ(program->producer[marked], 0);
  EXPECT_EQ(program->described[marked], "layer_tanh (made at layer_tanh)");
}

TEST(RegionProgram, ValuesDieAfterTheirLastUse) {
  const auto program = compiled(R"(
graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::add(%x, %y, %one)
  %unused : Tensor = aten::tanh(%a)
  %b : Tensor = aten::mul(%a, %y)
  %c : Tensor = aten::exp(%b)
  return (%c, %y))");
  EXPECT_EQ(names(*program, makerOf(*program, "a").dead_after), Names({"x"}));
  EXPECT_EQ(names(*program, makerOf(*program, "unused").dead_after), Names({"unused"}));
  EXPECT_EQ(names(*program, makerOf(*program, "b").dead_after), Names({"a"}));
  EXPECT_EQ(names(*program, makerOf(*program, "c").dead_after), Names({"b"}));
}

const char* const kBranch = R"(
graph(%x : Tensor, %y : Tensor, %z : Tensor, %flag : bool):
  %a : Tensor = aten::tanh(%x)
  %r : Tensor, %s : Tensor = prim::If(%flag)
    block0():
      %b : Tensor = aten::mul(%a, %y)
      %c : Tensor = aten::exp(%b)
      -> (%c, %z)
    block1():
      %d : Tensor = aten::sigmoid(%a)
      -> (%d, %d)
  %e : Tensor = aten::mul(%r, %s)
  %f : Tensor = aten::exp(%e)
  return (%f))";

TEST(RegionProgram, ValuesDieInArmsAndOnEnteringTheOther) {
  const auto program = compiled(kBranch);
  const ProgramNode& branch = makerOf(*program, "r");
  ASSERT_EQ(branch.form, ir::NodeForm::kBranch);
  EXPECT_EQ(names(*program, makerOf(*program, "b").dead_after), Names({"a", "y"}));
  EXPECT_EQ(names(*program, makerOf(*program, "d").dead_after), Names({"a"}));
  EXPECT_EQ(names(*program, branch.arms[0].dead_on_entry), Names({}));
  EXPECT_EQ(names(*program, branch.arms[1].dead_on_entry), Names({"y", "z"}));
  EXPECT_EQ(names(*program, branch.arms[0].dead_on_exit), Names({"c", "z"}));
  EXPECT_EQ(names(*program, branch.arms[1].dead_on_exit), Names({"d"}));
}

TEST(RegionProgram, ABranchThatIsOverLeavesNothingAliveBehindIt) {
  // Run with gradients off, only the result is left, whichever arm was taken.
  installMemoryStatistics();
  const at::NoGradGuard no_grad;
  for (const bool flag : {true, false}) {
    const int64_t before = liveBytes();
    std::vector<IValue> arguments{at::ones({100}), at::ones({100}), at::ones({100}), flag};
    Execution execution(compiled(kBranch));
    const auto results = execution.run(std::move(arguments));
    EXPECT_EQ(liveBytes() - before, 400);
  }
}

TEST(RegionProgram, AMarkOnWhatABranchReturnsIsOneOnBothArms) {
  const auto program = compiled(R"(
graph(%x : Tensor, %flag : bool):
  %a : Tensor = aten::tanh(%x)
  %14 : Tensor, %s : Tensor = prim::If(%flag)
    block0():
      %b : Tensor = aten::exp(%a)
      %c : Tensor, %c2 : Tensor = prim::If(%flag)
        block0():
          %b2 : Tensor = aten::sigmoid(%b)
          -> (%b2, %b)
        block1():
          -> (%b, %b)
      -> (%c, %b)
    block1():
      %d : Tensor = aten::sigmoid(%a)
      %d2 : Tensor = aten::sigmoid(%d)
      -> (%d, %d2)
  %r : Tensor = remat::keep(%14)
  %e : Tensor = aten::mul(%r, %s)
  %f : Tensor = aten::exp(%e)
  return (%f))");
  for (const char* name : {"b2", "b", "d", "c"}) {
    EXPECT_TRUE(isKept(*program, name)) << name;
  }
  for (const char* name : {"a", "d2", "e"}) {
    EXPECT_FALSE(isKept(*program, name)) << name;
  }
}

TEST(RegionProgram, BoundariesEndWhereNoLaterReplayCanNeedThem) {
  const auto program = compiled(R"(
graph(%x : Tensor, %w : Tensor):
  %11 : Tensor = aten::matmul(%x, %w)
  %a : Tensor = remat::keep(%11)
  %b : Tensor = aten::tanh(%a)
  %12 : Tensor = aten::matmul(%b, %w)
  %c : Tensor = remat::keep(%12)
  %d : Tensor = aten::tanh(%c)
  %e : Tensor = aten::sigmoid(%d)
  %13 : Tensor = aten::matmul(%e, %w)
  %f : Tensor = remat::keep(%13)
  %g : Tensor = aten::exp(%f)
  return (%g))");
  // b is made from a, and its last reader makes c; e is made from c, its last reader makes f.
  EXPECT_EQ(endingAt(*program, "c"), Names({"a"}));
  EXPECT_EQ(endingAt(*program, "f"), Names({"c"}));
  EXPECT_FALSE(isBoundary(*program, "x"));
  EXPECT_FALSE(isBoundary(*program, "f"));  // exp leaves the region: nothing is recomputed from f
}

TEST(RegionProgram, BoundariesReachThroughBranches) {
  const auto program = compiled(R"(
graph(%x : Tensor, %flag : bool):
  %11 : Tensor = aten::exp(%x)
  %a : Tensor = remat::keep(%11)
  %r : Tensor = prim::If(%flag)
    block0():
      %b : Tensor = aten::tanh(%a)
      -> (%b)
    block1():
      -> (%a)
  %s : Tensor = aten::sigmoid(%r)
  %t : Tensor = aten::exp(%s)
  return (%t))");
  EXPECT_TRUE(isBoundary(*program, "a"));
  EXPECT_EQ(endingAt(*program, "t"), Names({"a"}));
}

TEST(RegionProgram, LoopsAndWithStatementsAreOneOpaqueNode) {
  const auto program = compiled(R"(
graph(%x : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %a : Tensor = aten::tanh(%x)
  %y : Tensor = prim::Loop(%n, %true, %a)
    block0(%i : int, %h : Tensor):
      %g : Tensor = aten::sigmoid(%h)
      -> (%true, %g)
  %z : Tensor = aten::tanh(%y)
  %r : Tensor = aten::exp(%z)
  return (%r))");
  EXPECT_TRUE(isKept(*program, "y"));
  EXPECT_TRUE(isBoundary(*program, "y"));
  EXPECT_FALSE(isKept(*program, "z"));
  EXPECT_FALSE(isKept(*program, "a"));
  EXPECT_TRUE(makerOf(*program, "y").code != nullptr);
  EXPECT_EQ(names(*program, makerOf(*program, "y").dead_after), Names({"a", "n"}));
}

TEST(RegionProgram, ARecurrentNetWhoseDropoutMayDrawIsKept) {
  // Its masks come from the CPU generator on the CPU, and on CUDA from a state of cuDNN's own that
  // nobody can turn back.
  const auto program = [](const std::string& dropout, const std::string& train) {
    return programOf(makeModule(R"(
def forward(self, x: Tensor, train: bool, p: float) -> Tensor:
    out, hn, cn = torch.lstm(torch.tanh(x), [self.h, self.h], [self.wi, self.wh, self.b, self.b, self.wi, self.wh, self.b, self.b], True, 2, )" +
                                    dropout + ", " + train + R"(, False, False)
    return torch.sin(torch.sin(out))
)",
                                {{"h", randomTensor({2, 3, 8})},
                                 {"wi", randomTensor({32, 8})},
                                 {"wh", randomTensor({32, 8})},
                                 {"b", randomTensor({32})}}));
  };
  const auto isRecomputed = [&](const std::string& dropout, const std::string& train) {
    const auto compiled = program(dropout, train);
    const auto& nodes = compiled->nodes;
    const auto lstm = std::find_if(nodes.begin(), nodes.end(),
                                   [](const ProgramNode& node) { return node.op == "aten::lstm"; });
    return lstm != nodes.end() && lstm->recomputable;
  };
  EXPECT_TRUE(isRecomputed("0.0", "True"));
  EXPECT_TRUE(isRecomputed("0.5", "False"));
  EXPECT_FALSE(isRecomputed("0.5", "True"));
  EXPECT_FALSE(isRecomputed("0.5", "train"));
  EXPECT_FALSE(isRecomputed("p", "True"));
}

}  // namespace
}  // namespace remat::runtime::test
