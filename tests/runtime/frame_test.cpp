// How long a frame keeps what it keeps, and how often it recomputes.

#include "runtime/frame.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/memory_statistics.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class FrameTest : public RuntimeTest {};

constexpr int64_t kSide = 64;
constexpr int64_t kBytes = kSide * kSide * 4;

at::Tensor square(bool grad = false) { return randomTensor({kSide, kSide}, grad) * 0.1; }
at::Tensor leaf() { return square().set_requires_grad(true); }

/// tanh saves its result, matmul its inputs: everything but `x` and `w` can be recomputed.
const char* const kChain = R"(
def forward(self, x: Tensor) -> Tensor:
    a = torch.tanh(x @ self.w)
    b = torch.tanh(a @ self.w)
    c = torch.tanh(b @ self.w)
    return (c @ self.w).sum()
)";

Module chain(const std::vector<std::string>& keep = {}) {
  return optimized(makeModule(kChain, {{"w", square()}}), keep);
}

TEST_F(FrameTest, KeepsNothingThatCanBeRecomputed) {
  Module remat = chain();
  const at::Tensor x = leaf();
  const int64_t before = liveBytes();
  const at::Tensor loss = remat.forward({x}).toTensor();
  EXPECT_EQ(liveBytes() - before, 4);  // the loss
}

TEST_F(FrameTest, KeepsWhatIsMarked) {
  Module remat = chain({"aten::tanh"});
  const at::Tensor x = leaf();
  const int64_t before = liveBytes();
  const at::Tensor loss = remat.forward({x}).toTensor();
  EXPECT_EQ(liveBytes() - before, 4 + 3 * kBytes);
}

TEST_F(FrameTest, RecomputesEachValueOnceABackward) {
  Module remat = chain();
  const at::Tensor loss = remat.forward({leaf()}).toTensor();
  replayedNodes();
  loss.backward();
  EXPECT_EQ(replayedNodes(), 6);  // three matmuls, three tanhs
}

TEST_F(FrameTest, RecomputesFromBoundariesOnly) {
  Module remat = chain({"aten::matmul"});
  const at::Tensor loss = remat.forward({leaf()}).toTensor();
  replayedNodes();
  loss.backward();
  EXPECT_EQ(replayedNodes(), 3);
}

/// Calls `run` in the backward with the bytes that are alive there.
struct Probe : public torch::autograd::Function<Probe> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    if (run) {
      run();
    }
    return gradients;
  }
  static std::function<void()> run;
};
std::function<void()> Probe::run;

TEST_F(FrameTest, BoundariesGoAlongTheBackward) {
  // Two regions one after the other: in between, the second one's boundaries are gone.
  Module first = chain({"aten::matmul"});
  Module second = chain({"aten::matmul"});
  const at::Tensor x = leaf();
  for (const at::Tensor& parameter : first.parameters()) {
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  for (const at::Tensor& parameter : second.parameters()) {
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  x.mutable_grad() = at::zeros_like(x);
  const int64_t before = liveBytes();
  at::Tensor loss = first.forward({x}).toTensor();
  const int64_t one_region = liveBytes() - before;
  EXPECT_EQ(one_region, 4 + 3 * kBytes);
  loss = Probe::apply(loss);
  {
    const at::Tensor input = loss * x.detach();
    loss = second.forward({input}).toTensor();
  }
  int64_t between = -1;
  Probe::run = [&] { between = liveBytes() - before; };
  loss.backward();
  Probe::run = {};
  ASSERT_GT(between, 0);
  EXPECT_LT(between, one_region + 2 * kBytes);  // a gradient may still be in flight
  loss = at::Tensor();
  EXPECT_EQ(liveBytes(), before);
}

TEST_F(FrameTest, BoundariesAndWhatIsRecomputedGoWithTheirLastUse) {
  Module remat = optimized(makeModule(R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
    a = torch.tanh(x @ self.w)
    b = torch.tanh(a @ self.w)
    c = torch.tanh(b @ self.w)
    d = torch.tanh(c @ self.w)
    return (d @ self.w).sum(), b
)",
                                      {{"w", square()}}),
                           {"aten::matmul"});
  const at::Tensor x = leaf();
  x.mutable_grad() = at::zeros_like(x);
  at::Tensor w = remat.attr("w").toTensor();
  w.mutable_grad() = at::zeros_like(w);
  const int64_t before = liveBytes();
  const Tensors outputs = tensorsIn(remat.forward({x}));
  // b, which is a result, and the products behind a, c and d (b is not recomputed).
  EXPECT_EQ(liveBytes() - before, 4 * kBytes + 4);
  int64_t at_b = 0;
  outputs[1].register_hook([&](const at::Tensor&) { at_b = liveBytes() - before; });
  outputs[0].backward();
  // b, its gradient, that of w so far, and a's product; the loss and its gradient. The products of
  // c and d are gone, and so are c and d.
  EXPECT_EQ(at_b, 4 * kBytes + 8);
  EXPECT_EQ(liveBytes() - before, kBytes + 4);
}

TEST_F(FrameTest, BoundariesThatNothingNeedsGoInTheForward) {
  // The products are kept; an add saves nothing, so nothing will ever be recomputed from them.
  Module remat = optimized(makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    for_a = x * 2.0
    a = for_a + 1.0
    for_b = a * 2.0
    b = for_b + 1.0
    for_c = b * 2.0
    c = for_c + 1.0
    return c * 2.0
)"),
                           {"aten::mul"});
  const at::Tensor x = leaf();
  remat.forward({x});
  const int64_t before = liveBytes();
  resetPeak();
  remat.forward({x});
  EXPECT_LT(peakBytes() - before, 3 * kBytes + 100);
}

TEST_F(FrameTest, BoundariesOfAnArmThatWasNotTakenGoWithTheForward) {
  Module remat = optimized(makeModule(R"(
def forward(self, x: Tensor, flag: bool) -> Tensor:
    s = torch.exp(torch.sigmoid(x) * 2.0)
    product = x * 3.0
    a = product + 1.0
    if flag:
        s = s + torch.tanh(a).sum()
    return s + 1.0
)"),
                           {"aten::mul", "aten::sum"});
  const at::Tensor x = leaf();
  const int64_t before = liveBytes();
  const at::Tensor y = remat.forward({x, false}).toTensor();
  // The result and the product behind exp, which is recomputed; nobody needs the other one.
  EXPECT_EQ(liveBytes() - before, 2 * kBytes);
}

TEST_F(FrameTest, AViewOfWhatIsKeptIsNotRecomputed) {
  Module remat = optimized(makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    rows = (x @ self.w).view(-1)
    return (rows * rows).sum()
)",
                                      {{"w", square()}}),
                           {"aten::matmul"});
  replayedNodes();
  remat.forward({leaf()}).toTensor().backward();
  EXPECT_EQ(replayedNodes(), 0);
}

TEST_F(FrameTest, AGraphThatNeverRunsBackwardFreesEverything) {
  for (const std::vector<std::string>& keep :
       {std::vector<std::string>{}, std::vector<std::string>{"aten::tanh"},
        std::vector<std::string>{"aten::matmul"}}) {
    Module remat = chain(keep);
    const int64_t before = liveBytes();
    { remat.forward({leaf()}); }
    EXPECT_EQ(liveBytes(), before);
  }
}

TEST_F(FrameTest, ListsOfTuplesFromALoopAreHeldDetached) {
  // The loop is opaque, so its list is a boundary of the sigmoid; held with its history it would
  // hold the slots that hold the frame.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    pairs: List[Tuple[Tensor, Tensor]] = []
    for i in range(2):
        y = torch.tanh(x * float(i + 1))
        pairs.append((y, y * 2.0))
    a, b = pairs[1]
    return torch.exp(torch.sigmoid(a + b)).sum()
)");
  expectTrainsAlike(module, {randomTensor({4, 4}, true)});
  Module remat = optimized(module);
  const at::Tensor x = leaf();
  { remat.forward({x}); }
  const int64_t before = liveBytes();
  { remat.forward({x}); }
  EXPECT_EQ(liveBytes(), before);
}

TEST_F(FrameTest, RetainedGraphRunsTwiceAndNothingIsCachedInBetween) {
  Module plain = makeModule(kChain, {{"w", square()}});
  Module remat = optimized(plain, {"aten::matmul"});
  const at::Tensor x = leaf();
  const at::Tensor expected_loss = plain.forward({x}).toTensor();
  const at::Tensor loss = remat.forward({x}).toTensor();
  const int64_t before = liveBytes();
  replayedNodes();
  for (int i = 0; i < 3; ++i) {
    const bool last = i == 2;
    const Tensors expected =
        torch::autograd::grad({expected_loss}, {x, plain.attr("w").toTensor()}, {}, !last);
    const Tensors actual =
        torch::autograd::grad({loss}, {x, remat.attr("w").toTensor()}, {}, !last);
    expectSame(expected, actual, "gradient");
    EXPECT_EQ(replayedNodes(), 3);
    if (!last) {
      EXPECT_EQ(liveBytes() - before, 4 * kBytes);  // the gradients
    }
  }
  EXPECT_NE(errorOf([&] { torch::autograd::grad({loss}, {x}); }).find("second time"),
            std::string::npos);
}

TEST_F(FrameTest, PartialBackwardLeavesNoCache) {
  Module plain = makeModule(R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
    a = torch.tanh(x @ self.w)
    b = torch.tanh(a @ self.w)
    return a.sum(), (b @ self.w).sum()
)",
                            {{"w", square()}});
  Module remat = optimized(plain);
  const at::Tensor x = leaf();
  const auto outputs = tensorsIn(remat.forward({x}));
  const auto expected_outputs = tensorsIn(plain.forward({x}));
  const int64_t before = liveBytes();
  {
    const auto part = torch::autograd::grad({outputs[0]}, {x}, {}, true);
    const auto expected = torch::autograd::grad({expected_outputs[0]}, {x}, {}, true);
    expectSame(expected, part, "part");
  }
  EXPECT_EQ(liveBytes(), before);
  const auto rest = torch::autograd::grad({outputs[1]}, {x, remat.attr("w").toTensor()});
  const auto expected =
      torch::autograd::grad({expected_outputs[1]}, {x, plain.attr("w").toTensor()});
  expectSame(expected, rest, "rest");
}

TEST_F(FrameTest, OutsideOfABackwardNothingIsCached) {
  Module remat = chain();
  const at::Tensor x = leaf();
  const at::Tensor loss = remat.forward({x}).toTensor();
  const int64_t before = liveBytes();
  replayedNodes();
  {
    // The sum's node, its matmul's node: calling it by hand is no backward.
    const auto matmul = loss.grad_fn()->next_edge(0).function;
    Tensors gradients = (*matmul)({at::ones({kSide, kSide})});
    EXPECT_EQ(replayedNodes(), 6);
  }
  EXPECT_EQ(liveBytes(), before);
}

TEST_F(FrameTest, TwoForwardsBeforeTheirBackwards) {
  Module plain = makeModule(kChain, {{"w", square()}});
  Module remat = optimized(plain);
  const at::Tensor x = leaf();
  const at::Tensor y = leaf();
  const auto train = [&](Module& module) {
    const at::Tensor first = module.forward({x}).toTensor();
    const at::Tensor second = module.forward({y}).toTensor();
    Tensors gradients = torch::autograd::grad({first}, {x, module.attr("w").toTensor()});
    for (const auto& gradient : torch::autograd::grad({second}, {y, module.attr("w").toTensor()})) {
      gradients.push_back(gradient);
    }
    const at::Tensor both = module.forward({x}).toTensor() * module.forward({y}).toTensor();
    for (const auto& gradient :
         torch::autograd::grad({both}, {x, y, module.attr("w").toTensor()})) {
      gradients.push_back(gradient);
    }
    return gradients;
  };
  expectSame(train(plain), train(remat), "gradient");
}

TEST_F(FrameTest, GradientsAccumulateOverSeveralForwards) {
  Module plain = makeModule(kChain, {{"w", square()}});
  Module remat = optimized(plain);
  const Tensors inputs{leaf(), leaf(), leaf()};
  for (const at::Tensor& x : inputs) {
    plain.forward({x.detach()}).toTensor().backward();
    remat.forward({x.detach()}).toTensor().backward();
  }
  expectSame({plain.attr("w").toTensor().grad()}, {remat.attr("w").toTensor().grad()}, "gradient");
}

TEST_F(FrameTest, TwoHundredStepsDoNotGrow) {
  Module remat = optimized(makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    a = torch.dropout(torch.tanh(x @ self.w), 0.2, True)
    self.count.add_(1)
    if bool(self.count > 3):
        a = torch.sigmoid(a @ self.w)
    return torch.exp(a @ self.w).sum()
)",
                                      {{"w", square()}}, {{"count", at::zeros({})}}));
  at::Tensor w = remat.attr("w").toTensor();
  const auto train = [&] {
    remat.forward({square(true)}).toTensor().backward();
    const at::NoGradGuard no_grad;
    w.sub_(w.grad(), 1e-3);
    w.mutable_grad().zero_();
  };
  for (int i = 0; i < 10; ++i) {
    train();
  }
  const int64_t before = liveBytes();
  for (int i = 0; i < 200; ++i) {
    train();
  }
  EXPECT_EQ(liveBytes(), before);
}

}  // namespace
}  // namespace remat::runtime::test
