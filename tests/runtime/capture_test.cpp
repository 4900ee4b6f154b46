// Which saved tensors a region recognises, and what else sees of the hooks that do it.

#include "runtime/capture.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include "runtime/execution.h"
#include "runtime/memory_statistics.h"
#include "runtime/tensors.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class CaptureTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    installCapture();
  }
};

/// Computes an exponential, which autograd saves in its own node, and throws it away.
const torch::jit::RegisterOperators kWasteful({torch::jit::Operator(
    "capture_test::wasteful(Tensor x) -> Tensor",
    [](torch::jit::Stack& stack) {
      const at::Tensor x = torch::jit::pop(stack).toTensor();
      x.exp();
      stack.emplace_back(x.sin());
    },
    c10::AliasAnalysisKind::FROM_SCHEMA)});

/// By the value's name, how often each value of a region was saved; "" for internals.
class SlotCounter final : public ExecutionObserver {
 public:
  explicit SlotCounter(std::shared_ptr<const RegionProgram> program)
      : program_(std::move(program)) {}
  void beforeNode(int32_t) override {}
  void afterNode(int32_t, const NodeValues&) override {}
  void argument(int32_t, const IValue&) override {}
  void dropped(int32_t) override {}
  void slotSaved(SlotHooks& slot, const Saved& saved) override {
    counts[saved.value < 0 ? "" : program_->names[saved.value]]++;
    slot.keep(std::make_shared<const std::string>("test"));
  }

  std::map<std::string, int> counts;

 private:
  std::shared_ptr<const RegionProgram> program_;
};

std::shared_ptr<const RegionProgram> compiled(const std::string& ir) {
  torch::jit::Graph graph;
  torch::jit::parseIR(ir, &graph);
  return compileRegion(graph);
}

std::map<std::string, int> savedBy(const Module& module, const std::vector<IValue>& inputs) {
  const auto program = programOf(module);
  SlotCounter counter(program);
  std::vector<IValue> arguments{module._ivalue()};
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  Execution(program, &counter).run(arguments);
  return counter.counts;
}

int total(const std::map<std::string, int>& counts) {
  int sum = 0;
  for (const auto& [name, count] : counts) {
    sum += count;
  }
  return sum;
}

TEST_F(CaptureTest, MatchesInputsAndOutputs) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    product = torch.mm(x, self.w)
    return torch.tanh(product)
)",
                                   {{"w", randomTensor({4, 4})}});
  auto counts = savedBy(module, {randomTensor({4, 4}, true)});
  EXPECT_EQ(counts[""], 0);
  EXPECT_EQ(counts["x"], 1);
  EXPECT_EQ(total(counts), 3);  // and w, and tanh's result
  for (const auto& [name, count] : counts) {
    EXPECT_EQ(count, name.empty() ? 0 : 1) << name;
  }
}

TEST_F(CaptureTest, MatchesViewsByStorage) {
  // addmm saves views of what linear was given.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.linear(torch.relu(x), self.w, self.b)
)",
                                   {{"w", randomTensor({4, 4})}, {"b", randomTensor({4})}});
  auto counts = savedBy(module, {randomTensor({2, 3, 4}, true)});
  EXPECT_EQ(counts[""], 0);
  EXPECT_GE(total(counts), 3);
}

TEST_F(CaptureTest, MatchesListElements) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    rows = torch.unbind(torch.tanh(x))
    y = rows[0]
    for i in range(2):
        y = y * rows[i + 1]
    return y
)");
  auto counts = savedBy(module, {randomTensor({3, 4}, true)});
  // The loop saves two of its rows, both of them elements of the list, and two of its own values,
  // of which the first is rows[0] again.
  EXPECT_EQ(counts[""], 1);
}

TEST_F(CaptureTest, InternalsMatchNothing) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.max_pool2d(x, [2, 2])
)");
  auto counts = savedBy(module, {randomTensor({1, 1, 4, 4}, true)});
  EXPECT_EQ(counts["x"], 1);
  EXPECT_EQ(counts[""], 1);  // the indices
}

TEST_F(CaptureTest, WrappedNumbersAreNotHooked) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.tanh(x * 3.0) / 2.0
)");
  expectTrainsAlike(module, {randomTensor({4, 4}, true)});
  auto counts = savedBy(module, {randomTensor({4, 4}, true)});
  EXPECT_EQ(counts[""], 0);
}

TEST_F(CaptureTest, ConjugateAndNegativeViewsKeepTheirBits) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    z = torch.tanh(torch.view_as_complex(torch.tanh(x)))
    c = torch.conj(z)
    n = torch.imag(c)
    p = (c * z) * z.conj()
    return torch.real(p * p) * torch.sigmoid(n * n)
)");
  expectTrainsAlike(module, {randomTensor({4, 2}, true)});
}

TEST_F(CaptureTest, ViewsOfAnotherDtypeAreKept) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x)
    z = torch.view_as_complex(h)
    return torch.sigmoid(torch.view_as_real(z * z))
)");
  expectTrainsAlike(module, {randomTensor({4, 2}, true)});
}

TEST_F(CaptureTest, ScopesNest) {
  const at::Tensor x = randomTensor({3}, true);
  CaptureScope outer;
  const at::Tensor a = x.exp();
  ASSERT_EQ(outer.slots().size(), 1U);
  {
    CaptureScope inner;
    const at::Tensor b = a.sin();
    EXPECT_EQ(inner.slots().size(), 1U);
    EXPECT_EQ(outer.slots().size(), 1U);
    {
      const CapturePause pause;
      const at::Tensor c = a.cos();
      EXPECT_EQ(inner.slots().size(), 1U);
    }
  }
  const at::Tensor d = a.tanh();
  EXPECT_EQ(outer.slots().size(), 2U);
  outer.end();
  const at::Tensor e = a.tanh();
  EXPECT_EQ(outer.slots().size(), 2U);
}

TEST_F(CaptureTest, WhatNobodyDecidedOnIsKept) {
  const at::Tensor x = randomTensor({3}, true);
  at::Tensor y;
  {
    CaptureScope scope;
    y = x.exp();
    EXPECT_TRUE(scope.slots().at(0)->noted().is_same(y));
  }
  expectSame({x.exp().detach()}, torch::autograd::grad({y.sum()}, {x}), "gradient");
  const int64_t before = liveBytes();
  {
    const CaptureScope scope;
    x.exp();
  }
  EXPECT_EQ(liveBytes(), before);
}

TEST_F(CaptureTest, WhatAnOperatorThrowsAwayGoesWithItsNode) {
  const auto program = compiled(R"(
graph(%x : Tensor):
  %y : Tensor = capture_test::wasteful(%x)
  return (%y)
)");
  const at::Tensor x = randomTensor({3}, true);
  const int64_t before = liveBytes();
  {
    const at::Tensor y = Execution(program).run({x})[0].toTensor();
    expectSame({x.cos().detach()}, torch::autograd::grad({y.sum()}, {x}), "gradient");
  }
  EXPECT_EQ(liveBytes(), before);
}

TEST_F(CaptureTest, AnArgumentIsKeptAsItIsAndAResultDetached) {
  const auto name = std::make_shared<const std::string>("of a test");
  const at::Tensor x = randomTensor({3}, true).exp();
  CaptureScope scope;
  const at::Tensor y = (x * x).exp();
  ASSERT_EQ(scope.slots().size(), 3U);
  scope.end();
  SlotHooks& argument = *scope.slots()[0];
  SlotHooks& result = *scope.slots()[2];
  argument.keepArgument(name);
  result.keep(name);
  EXPECT_TRUE(argument.call_unpack_hook().is_same(x));
  EXPECT_TRUE(result.call_unpack_hook().is_alias_of(y));
  EXPECT_EQ(result.call_unpack_hook().grad_fn(), nullptr);
}

/// An operator that writes its argument may save it as its result: kept as it is, it would own the
/// node that owns its slot.
TEST_F(CaptureTest, AWrittenArgumentHoldsNothingAlive) {
  const auto program = compiled(R"(
graph(%x : Tensor):
  %h : Tensor = aten::mul(%x, %x)
  %y : Tensor = aten::sigmoid_(%h)
  return (%y)
)");
  const at::Tensor x = randomTensor({3}, true);
  const int64_t before = liveBytes();
  {
    const at::Tensor y = Execution(program).run({x})[0].toTensor();
    const at::Tensor expected = 2.0 * x * y * (1.0 - y);
    const at::Tensor actual = torch::autograd::grad({y.sum()}, {x}, {}, true)[0];
    EXPECT_TRUE(at::allclose(actual, expected));
  }
  EXPECT_EQ(liveBytes(), before);
}

TEST_F(CaptureTest, OperatorsThatThrowLeaveNothingBehind) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor, y: Tensor) -> Tensor:
    h = torch.tanh(x)
    return torch.sigmoid(h) @ y
)");
  Module remat = optimized(module);
  const at::Tensor x = randomTensor({4, 4}, true);
  const int64_t before = liveBytes();
  const std::string error = errorOf([&] { remat.forward({x, at::ones({3, 3})}); });
  EXPECT_NE(error.find("mat1 and mat2 shapes cannot be multiplied"), std::string::npos) << error;
  EXPECT_NE(error.find("in aten::matmul"), std::string::npos) << error;
  EXPECT_EQ(liveBytes(), before);
  // Capture is off again: this saves natively.
  const at::Tensor z = x.exp();
  expectSame({x.exp().detach()}, torch::autograd::grad({z.sum()}, {x}), "gradient");
  expectTrainsAlike(module, {x, at::ones({4, 4})});
}

TEST_F(CaptureTest, RaisingInTheRegionIsPassedOn) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x)
    assert x.size(0) <= 2, "too many rows"
    return torch.sigmoid(h)
)");
  Module remat = optimized(module);
  const std::string error = errorOf([&] { remat.forward({at::ones({4, 4})}); });
  EXPECT_NE(error.find("AssertionError: too many rows"), std::string::npos) << error;
  step(remat, {randomTensor({2, 4}, true)});
}

/// Saves through its own hooks, like a C++ program that offloads activations.
struct CountingHooks final : public torch::autograd::SavedVariableHooks {
  explicit CountingHooks(int* left, int* packed) : left(left), packed(packed) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    TORCH_CHECK((*left)-- > 0, "the hook's memory is full");
    ++*packed;
    data = tensor.clone(at::MemoryFormat::Contiguous);
  }
  at::Tensor call_unpack_hook() override { return data; }
  int* left;
  int* packed;
  at::Tensor data;
};

/// An engine of the caller's that hands out hooks of its own.
class CallersEngine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return left > 0 || packed > 0 ? std::make_unique<CountingHooks>(&left, &packed) : nullptr;
  }
  void off() { left = packed = 0; }
  int left = 0;    // calls until the hooks throw; 0: no hooks
  int packed = 0;  // calls so far
};

}  // namespace

/// main puts the caller's engine in place before ours, which asks for it once.
class CallersHooks : public CaptureTest {
 public:
  static CallersEngine& engine() {
    static auto* const instance = new CallersEngine;
    return *instance;
  }
};

TEST_F(CallersHooks, SeeKeptTensorsAndBoundariesAndNothingElse) {
  // The matmul's operand is kept with its strides; a hook returns another layout, and what is
  // recomputed from it must still be what the forward computed.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.matmul(x, self.w).t()
    a = torch.sigmoid(h)
    b = torch.tanh(a)
    rows = torch.unbind(b, 1)
    y = b[0]
    for i in range(2):
        y = y * b[i + 1]
    return torch.sigmoid(y) + rows[0].sum()
)",
                                   {{"w", randomTensor({8, 6})}});
  Module plain = copyOf(module);
  Module remat = optimized(module, {"aten::matmul", "aten::t"});
  const at::Tensor x = randomTensor({5, 8}, true);
  const StepResult expected = step(plain, {x});
  engine().left = 1000;
  const StepResult actual = step(remat, {x});
  EXPECT_GT(engine().packed, 0);
  engine().off();
  expectSame(expected.outputs, actual.outputs, "output");
  ASSERT_EQ(expected.gradients.size(), actual.gradients.size());
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_TRUE(at::allclose(expected.gradients[i], actual.gradients[i])) << i;
  }
}

TEST_F(CallersHooks, MayThrow) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x) * x
    return torch.exp(torch.max_pool2d(h, [2, 2]) * x.sum())
)");
  Module remat = optimized(module);
  const at::Tensor x = randomTensor({1, 1, 4, 4}, true);
  { remat.forward({x}); }
  const int64_t before = liveBytes();
  int failures = 0;
  for (int left = 1; left < 10; ++left) {
    engine().left = left;
    const std::string error = errorOf([&] { remat.forward({x}); });
    failures += error.empty() ? 0 : 1;
    engine().off();
    EXPECT_EQ(liveBytes(), before) << left;
  }
  EXPECT_GT(failures, 1);
  EXPECT_LT(failures, 9);
  expectTrainsAlike(module, {x});
}

}  // namespace remat::runtime::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  torch::autograd::set_default_engine_stub(
      []() -> torch::autograd::Engine& { return remat::runtime::test::CallersHooks::engine(); });
  return RUN_ALL_TESTS();
}
