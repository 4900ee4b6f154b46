// The pass in LibTorch's own executors, and in pipelines of other passes.

#include "passes/register_pass.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/pass_manager.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include "passes/activation_checkpointing.h"
#include "passes/training_step.h"
#include "runtime/memory_statistics.h"
#include "runtime/statistics.h"

namespace remat {
namespace {

using torch::jit::Graph;
using torch::jit::Module;

/// Convolutions with norms in training mode, dropout and a residual edge, four times; then a head.
Module sample(const std::string& name, double dropout = 0.1) {
  at::manual_seed(1);
  Module module(name);
  for (const char* block : {"one", "two", "three", "four"}) {
    Module inner(name + "_" + block);
    const auto parameter = [&](const char* of, const at::Tensor& value) {
      inner.register_parameter(of, value.set_requires_grad(true), /*is_buffer=*/false);
    };
    parameter("w", at::randn({8, 8, 3, 3}).div_(8));
    parameter("g", at::ones({8}));
    parameter("b", at::zeros({8}));
    inner.register_buffer("mean", at::zeros({8}));
    inner.register_buffer("var", at::ones({8}));
    inner.register_attribute("training", c10::BoolType::get(), true);
    inner.define(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.conv2d(x, self.w, None, [1, 1], [1, 1])\n"
        "    h = torch.batch_norm(h, self.g, self.b, self.mean, self.var, self.training, "
        "0.1, 1e-5, False)\n"
        "    return x + torch.dropout(torch.gelu(torch.relu(h)), " +
        std::to_string(dropout) + ", self.training)\n");
    module.register_module(block, inner);
  }
  module.register_parameter("head", at::randn({4, 8}).set_requires_grad(true), false);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    h = self.four.forward(self.three.forward(self.two.forward(self.one.forward(x))))
    return torch.linear(h.mean([2, 3]), self.head)
)");
  return module;
}

at::Tensor images() {
  at::manual_seed(2);
  return at::randn({4, 8, 32, 32});
}

struct Step {
  std::vector<at::Tensor> tensors;  ///< output, gradients, buffers, the next draw
  int64_t peak = 0;
  int64_t replayed = 0;
};

/// One training step as a program does it: plain forward and backward.
Step train(Module module, const at::Tensor& x, bool autocast = false) {
  for (const at::Tensor& parameter : module.parameters()) parameter.mutable_grad().reset();
  runtime::takeStatistics();
  const int64_t before = runtime::liveBytes();
  runtime::resetPeak();
  at::autocast::set_autocast_enabled(at::kCPU, autocast);
  at::Tensor y = module.forward({x}).toTensor();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  Step step;
  step.tensors.push_back(y.detach().clone());
  y.square().sum().backward();
  y = at::Tensor();
  step.peak = runtime::peakBytes() - before;
  step.replayed = runtime::takeStatistics().replayed_nodes;
  for (const at::Tensor& parameter : module.parameters()) {
    step.tensors.push_back(parameter.grad().clone());
  }
  for (const at::Tensor& buffer : module.buffers()) step.tensors.push_back(buffer.clone());
  step.tensors.push_back(at::rand({3}));
  return step;
}

/// As eager mode trains: operator by operator.
Step trainEagerly(const Module& module, const at::Tensor& x, bool autocast = false) {
  const torch::jit::GraphOptimizerEnabledGuard off(false);
  return train(module, x, autocast);
}

void expectSame(const Step& expected, const Step& actual, const std::string& where) {
  ASSERT_EQ(expected.tensors.size(), actual.tensors.size()) << where;
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(expected.tensors[i], actual.tensors[i])) << where << ", tensor " << i;
  }
}

class RegisterPassTest : public testing::Test {
 protected:
  void SetUp() override {
    runtime::installMemoryStatistics();
    runtime::enableStatistics(true);
    options_.minimum_bytes = 1024;
    options_.budget.fraction = 0.6;
    options_.progress = [this](const std::string& text) { said_ += text + "\n"; };
  }
  void TearDown() override {
    torch::jit::clearAllPrePasses();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }

  /// Six steps beside eager's, all the same bits; returns the last one's peak over eager's.
  double compare(const Module& actual, const Module& eager, bool autocast, bool replays) {
    const at::Tensor x = images();
    double share = 0;
    for (int call = 1; call <= 6; ++call) {
      at::manual_seed(call);
      const Step expected = trainEagerly(eager, x, autocast);
      at::manual_seed(call);
      const Step step = train(actual, x, autocast);
      expectSame(expected, step, "call " + std::to_string(call));
      EXPECT_EQ(step.replayed > 0, replays) << "call " << call << "\n" << said_;
      share = static_cast<double>(step.peak) / static_cast<double>(expected.peak);
    }
    return share;
  }

  OptimizeOptions options_;
  std::string said_;
};

TEST_F(RegisterPassTest, AWarmedUpModuleTrainsWithinItsBudget) {
  const RegisteredPass pass(options_);
  const Module module = sample("Warm");
  warmUp(module, {images()});
  EXPECT_LE(compare(module, sample("WarmEager"), /*autocast=*/false, /*replays=*/true), 0.62);
}

TEST_F(RegisterPassTest, UnderAutocastToo) {
  // What bfloat16's convolutions need beside their results differs between processors.
  options_.budget.kind = Budget::Kind::kMinimum;
  const RegisteredPass pass(options_);
  const Module module = sample("Autocast");
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  warmUp(module, {images()});
  at::autocast::set_autocast_enabled(at::kCPU, false);
  compare(module, sample("AutocastEager"), /*autocast=*/true, /*replays=*/true);
}

TEST_F(RegisterPassTest, ArgumentsWithDefaultsAndAttributesOfAnyTypeAreRead) {
  const auto withDefaults = [](const std::string& name) {
    Module module(name);
    module.register_module("body", sample(name + "_body"));
    module.register_attribute("strict", c10::BoolType::get(), true);
    module.register_attribute("factor", c10::FloatType::get(), 2.0);
    module.define(R"(
def forward(self, x: Tensor, shift: Optional[Tensor] = None, times: int = 2) -> Tensor:
    if self.strict:
        assert x.size(1) == 8
    h = self.body.forward(x) * self.factor * times
    return h if shift is None else h + shift
)");
    return module;
  };
  const RegisteredPass pass(options_);
  const Module module = withDefaults("Defaults");
  warmUp(module, {images()});
  compare(module, withDefaults("DefaultsEager"), /*autocast=*/false, /*replays=*/true);
}

TEST_F(RegisterPassTest, WarmingUpLeavesTheModuleAsItWas) {
  const RegisteredPass pass(options_);
  const Module module = sample("State");
  std::vector<at::Tensor> before;
  for (const at::Tensor& buffer : module.buffers()) before.push_back(buffer.clone());
  const at::Tensor x = images();
  at::manual_seed(7);
  const at::Tensor expected_draw = at::rand({4});
  at::manual_seed(7);
  warmUp(module, {x});
  EXPECT_TRUE(at::equal(expected_draw, at::rand({4})));
  size_t i = 0;
  for (const at::Tensor& buffer : module.buffers()) EXPECT_TRUE(at::equal(before[i++], buffer));
  for (const at::Tensor& parameter : module.parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_F(RegisterPassTest, AModuleThatIsNotWarmedUpTrainsAsEver) {
  const RegisteredPass pass(options_);
  warmUp(sample("Other"), {images()});
  const Module module = sample("Cold");
  for (int call = 1; call <= 3; ++call) {
    at::manual_seed(call);
    const Step step = train(module, images());
    EXPECT_EQ(step.replayed, 0);
  }
}

/// Such a loop shows the pass the whole method, which makes up a module by the types of what the
/// graph reads.
TEST_F(RegisterPassTest, ALoopWithGradientsOffKeepsItsRandomNumbers) {
  const RegisteredPass pass(options_);
  const auto draw = [](const std::string& name) {
    Module module = sample(name);
    module.register_buffer("unread", at::zeros({1}));
    at::manual_seed(7);
    const at::NoGradGuard no_grad;
    const at::Tensor x = at::randn({4, 8, 32, 32});
    for (int call = 1; call <= 4; ++call) module.forward({x});
    return at::rand({3});
  };
  const at::Tensor expected = [&] {
    const torch::jit::GraphOptimizerEnabledGuard off(false);
    return draw("LoopEager");
  }();
  EXPECT_TRUE(at::equal(expected, draw("Loop")));
}

TEST_F(RegisterPassTest, WithoutTheExecutorsOptimisationNothingChanges) {
  const RegisteredPass pass(options_);
  const Module module = sample("Off");
  const torch::jit::GraphOptimizerEnabledGuard off(false);
  warmUp(module, {images()});
  compare(module, sample("OffEager"), /*autocast=*/false, /*replays=*/false);
}

TEST_F(RegisterPassTest, OtherPassesMayBeRegisteredBeforeAndAfter) {
  int seen = 0;
  const auto count = [&seen](std::shared_ptr<Graph>& graph) {
    ++seen;
    torch::jit::EliminateDeadCode(graph);
  };
  torch::jit::registerPrePass(count);
  const RegisteredPass pass(options_);
  torch::jit::registerPrePass(count);
  const RegisteredPass again(options_);
  const Module module = sample("Two");
  warmUp(module, {images()});
  EXPECT_GE(seen, 2);
  EXPECT_LE(compare(module, sample("TwoEager"), /*autocast=*/false, /*replays=*/true), 0.62);
  EXPECT_THAT(said_, testing::HasSubstr("it is checkpointed already"));
}

TEST_F(RegisterPassTest, ARegistrationThatIsGoneChangesNothingMore) {
  const unsigned name = registerPass(options_);
  torch::jit::clearPrePass(name);
  const Module module = sample("Cleared");
  warmUp(module, {images()});
  for (int call = 1; call <= 3; ++call) EXPECT_EQ(train(module, images()).replayed, 0);
}

TEST_F(RegisterPassTest, WhatIsNotSeenWholeIsNamedOnce) {
  const RegisteredPass pass(options_);
  Module module("Halves");
  module.register_parameter("w", at::ones({8, 8}).set_requires_grad(true), false);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.tanh(torch.sigmoid(torch.matmul(x, self.w)) * torch.relu(x))
)");
  for (int call = 0; call < 5; ++call)
    module.forward({at::ones({8, 8})}).toTensor().sum().backward();
  const size_t first = said_.find("a part of a method");
  EXPECT_NE(first, std::string::npos) << said_;
  EXPECT_EQ(said_.find("a part of a method", first + 1), std::string::npos) << said_;
}

TEST_F(RegisterPassTest, ABudgetOutOfReachIsAnError) {
  options_.budget.fraction = 0.01;
  const RegisteredPass pass(options_);
  try {
    warmUp(sample("Small"), {images()});
    FAIL() << said_;
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("can't be met: the lowest reachable peak"));
  }
}

/// A method's graph with its calls inlined.
std::shared_ptr<Graph> inlined(const Module& module) {
  std::shared_ptr<Graph> graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  return graph;
}

TEST_F(RegisterPassTest, GraphsAreCheckpointedAmongOtherPasses) {
  const auto fold = [](std::shared_ptr<Graph>& graph) { torch::jit::ConstantPropagation(graph); };
  const auto merge = [](std::shared_ptr<Graph>& graph) {
    torch::jit::EliminateCommonSubexpression(graph);
  };
  const auto clean = [](std::shared_ptr<Graph>& graph) { torch::jit::EliminateDeadCode(graph); };
  const auto peep = [](std::shared_ptr<Graph>& graph) { torch::jit::PeepholeOptimize(graph); };
  const at::Tensor x = images();
  const Module eager = sample("PipelineEager");
  at::manual_seed(3);
  const Step expected = trainEagerly(eager, x);
  using Pass = std::function<void(std::shared_ptr<Graph>&)>;
  for (const std::vector<Pass>& before : std::vector<std::vector<Pass>>{
           {}, {fold, merge, clean, peep}, {peep, clean}, {merge, fold}}) {
    const Module module = sample("Pipeline");
    std::shared_ptr<Graph> graph = inlined(module);
    for (const Pass& pass : before) pass(graph);
    const CheckpointingResult result =
        ActivationCheckpointing(graph, options_, {module._ivalue(), x});
    ASSERT_TRUE(result.changed) << result.reason_unchanged;
    EXPECT_LE(result.plan.predicted_peak, result.original_peak * 6 / 10);
    for (const Pass& pass : std::vector<Pass>{clean, peep, fold, merge}) pass(graph);
    at::manual_seed(3);
    torch::jit::GraphExecutor executor(graph, "pipeline");
    torch::jit::Stack stack{module._ivalue(), x};
    {
      const torch::jit::GraphOptimizerEnabledGuard off(false);
      executor.run(stack);
    }
    const at::Tensor y = stack.at(0).toTensor();
    EXPECT_TRUE(at::equal(expected.tensors[0], y));
    runtime::takeStatistics();
    y.square().sum().backward();
    EXPECT_GT(runtime::takeStatistics().replayed_nodes, 0);
    size_t i = 1;
    for (const at::Tensor& parameter : module.parameters()) {
      EXPECT_TRUE(at::equal(expected.tensors[i++], parameter.grad()));
    }
  }
}

TEST_F(RegisterPassTest, AGraphWithoutSizesAsksForThem) {
  std::shared_ptr<Graph> graph = inlined(sample("Untyped"));
  try {
    makePass(options_)(graph);
    FAIL();
  } catch (const RematError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("doesn't say sizes"));
    EXPECT_THAT(error.what(), testing::HasSubstr("gradients off"));
  }
}

TEST_F(RegisterPassTest, AGraphWithSizesNeedsNoArguments) {
  const Module module = sample("Typed");
  bool changed = false;
  int64_t peak = 0;
  torch::jit::registerPrePass([&](std::shared_ptr<Graph>& graph) {
    const CheckpointingResult result = ActivationCheckpointing(graph, options_);
    changed = result.changed;
    peak = result.plan.predicted_peak;
  });
  const at::NoGradGuard no_grad;
  for (int call = 0; call < 3; ++call) Module(module).forward({images()});
  EXPECT_TRUE(changed);
  EXPECT_GT(peak, 0);
}

}  // namespace
}  // namespace remat
