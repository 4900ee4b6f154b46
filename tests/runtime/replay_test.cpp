// What a replay computes, on whose thread, and what is left of it after an error.

#include "runtime/replay.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "runtime/execution.h"
#include "runtime/memory_statistics.h"
#include "runtime/session.h"
#include "tests/runtime/support.h"
#include "tests/runtime/touchy.h"

namespace remat::runtime::test {
namespace {

class ReplayTest : public RuntimeTest {};

const char* const kMixed = R"(
def forward(self, x: Tensor) -> Tensor:
    a = torch.tanh(x @ self.w)
    n = torch.layer_norm(a, [8], self.g, self.b)
    s = torch.softmax(n @ self.w, -1)
    parts = torch.chunk(torch.sigmoid(s * n), 2, 1)
    c = torch.cat([parts[1], parts[0] * parts[1]], 1)
    return torch.gelu(c @ self.w)
)";

Module mixed() {
  return makeModule(
      kMixed, {{"w", randomTensor({8, 8})}, {"g", randomTensor({8})}, {"b", randomTensor({8})}});
}

Tensors leavesOf(const Module& module, const at::Tensor& x) {
  Tensors leaves{x};
  for (const at::Tensor& parameter : module.parameters()) {
    leaves.push_back(parameter);
  }
  return leaves;
}

const std::vector<std::vector<std::string>> kPlans = {
    {},
    {"aten::matmul"},
    {"aten::tanh", "aten::softmax"},
    {"aten::chunk", "prim::ListConstruct"},
    {"aten::softmax", "each time aten::tanh", "each time aten::matmul", "each time aten::sigmoid"}};

TEST_F(ReplayTest, GradientsEqualThePlainModules) {
  for (const auto& keep : kPlans) {
    expectTrainsAlike(mixed(), {randomTensor({6, 8}, true)}, keep);
  }
}

TEST_F(ReplayTest, SecondDerivativesEqualThePlainModules) {
  const Module module = mixed();
  const at::Tensor x = randomTensor({6, 8}, true);
  const auto derivatives = [&](Module trained) {
    const Tensors leaves = leavesOf(trained, x);
    const at::Tensor loss = trained.forward({x}).toTensor().pow(2).sum();
    Tensors result = torch::autograd::grad({loss}, leaves, {}, true, /*create_graph=*/true);
    // A Hessian-vector product.
    at::Tensor product = at::zeros({});
    for (const at::Tensor& gradient : result) {
      product = product + (gradient * gradient.detach().cos()).sum();
    }
    for (const auto& second : torch::autograd::grad({product}, leaves, {}, true)) {
      result.push_back(second);
    }
    for (const auto& again : torch::autograd::grad({loss}, leaves)) {
      result.push_back(again);
    }
    for (at::Tensor& tensor : result) {
      tensor = tensor.detach();
    }
    return result;
  };
  const Tensors expected = derivatives(copyOf(module));
  for (const auto& keep : kPlans) {
    const int64_t before = liveBytes();
    { expectSame(expected, derivatives(optimized(module, keep)), "derivative"); }
    EXPECT_EQ(liveBytes(), before);
  }
}

TEST_F(ReplayTest, KernelsThatDependOnGradientsAreChosenAsInTheForward) {
  // oneDNN's LSTM rounds differently with gradients off, attention where its mask requires none.
  const Module lstm = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x)
    out, hn, cn = torch.lstm(h, [self.h, self.c], [self.wi, self.wh, self.bi, self.bh], True, 1,
                             0.0, True, False, False)
    return torch.tanh(torch.sin(out)) + cn
)",
                                 {{"h", randomTensor({1, 3, 8})},
                                  {"c", randomTensor({1, 3, 8})},
                                  {"wi", randomTensor({32, 8})},
                                  {"wh", randomTensor({32, 8})},
                                  {"bi", randomTensor({32})},
                                  {"bh", randomTensor({32})}});
  expectTrainsAlike(lstm, {randomTensor({5, 3, 8}, true)});
  const Module attention = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    q = torch.sin(x)
    y = torch.scaled_dot_product_attention(q, torch.cos(q), q, torch.sin(self.bias), 0.0, False)
    return torch.tanh(torch.sin(y) * 2.0)
)",
                                      {{"bias", randomTensor({2, 2, 33, 33})}});
  const std::vector<IValue> inputs{randomTensor({2, 2, 33, 16}, true)};
  expectTrainsAlike(attention, inputs);
  // Nothing of the graphs that are thrown away is left.
  Module remat = optimized(attention);
  step(remat, inputs);
  const int64_t before = liveBytes();
  step(remat, inputs);
  EXPECT_EQ(liveBytes(), before);
}

TEST_F(ReplayTest, BackwardDrivenFromAnotherThread) {
  Module plain = mixed();
  Module remat = optimized(plain);
  const at::Tensor x = randomTensor({6, 8}, true);
  const Tensors expected =
      torch::autograd::grad({plain.forward({x}).toTensor().sum()}, leavesOf(plain, x));
  const at::Tensor loss = remat.forward({x}).toTensor().sum();
  Tensors actual;
  std::thread([&] { actual = torch::autograd::grad({loss}, leavesOf(remat, x)); }).join();
  expectSame(expected, actual, "gradient");
}

TEST_F(ReplayTest, SeveralBackwardsOfOneGraphAtOnce) {
  Module plain = mixed();
  Module remat = optimized(plain);
  const at::Tensor x = randomTensor({6, 8}, true);
  const Tensors expected =
      torch::autograd::grad({plain.forward({x}).toTensor().sum()}, leavesOf(plain, x));
  const at::Tensor loss = remat.forward({x}).toTensor().sum();
  std::vector<Tensors> actual(4);
  std::vector<std::thread> threads;
  threads.reserve(actual.size());
  for (auto& result : actual) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        result = torch::autograd::grad({loss}, leavesOf(remat, x), {}, true);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& result : actual) {
    expectSame(expected, result, "gradient");
  }
}

/// Two threads of one backward, as the engine has for two devices, ask one frame for its values.
TEST_F(ReplayTest, ThreadsOfOneBackwardShareWhatTheyRecompute) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    a = torch.tanh(x)
    parts = torch.split(a, 4, 1)
    b = torch.sigmoid(parts[0])
    c = torch.gelu(b)
    return c
)");
  const auto program = programOf(module);
  const at::Tensor x = randomTensor({64, 8});
  constexpr int kThreads = 4;
  for (int round = 0; round < 50; ++round) {
    const auto frame = std::make_shared<Frame>(program);
    std::vector<int32_t> recomputed;
    for (size_t v = 0; v < program->valueCount(); ++v) {
      const int32_t value = static_cast<int32_t>(v);
      if (program->boundary[v] != 0) {
        frame->holdBoundary(value, program->producer[v] < 0 ? IValue(x) : IValue());
      } else if (program->kept[v] == 0) {
        recomputed.push_back(value);
        for (int i = 0; i < kThreads; ++i) {
          frame->addHandle(value);
        }
      }
    }
    ASSERT_GE(recomputed.size(), 4U);
    frame->endForward();
    // Each thread will ask for each value once, and so may whoever recomputes the next one.
    Session session(std::vector<int32_t>(program->valueCount(), 2 * kThreads));
    replayedNodes();
    std::atomic<int> ready{0};
    std::vector<std::vector<IValue>> made(kThreads);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        ready++;
        while (ready < kThreads) {
        }
        for (size_t k = 0; k < recomputed.size(); ++k) {
          const int32_t value = recomputed[i % 2 == 0 ? recomputed.size() - 1 - k : k];
          made[i].push_back(Materialization(*frame, &session).make(value));
        }
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(replayedNodes(), static_cast<int64_t>(recomputed.size()));
    for (size_t k = 0; k < recomputed.size(); ++k) {
      const auto first = tensorsIn(made[0][recomputed.size() - 1 - k]);
      for (int i = 1; i < kThreads; ++i) {
        const auto other = tensorsIn(made[i][i % 2 == 0 ? recomputed.size() - 1 - k : k]);
        ASSERT_EQ(first.size(), other.size());
        for (size_t t = 0; t < first.size(); ++t) {
          EXPECT_TRUE(first[t].is_same(other[t]));
        }
      }
    }
  }
}

TEST_F(ReplayTest, AnErrorInTheBackwardDropsTheCacheAndTheNextStepIsWhole) {
  Module plain = mixed();
  Module remat = optimized(plain);
  const at::Tensor x = randomTensor({6, 8}, true);
  const at::Tensor loss = remat.forward({x}).toTensor().sum();
  const int64_t before = liveBytes();
  bool fail = true;
  // The norm's input gradient comes when half of the values have been recomputed.
  const at::Tensor w = remat.attr("w").toTensor();
  const auto hook = x.register_hook([&](const at::Tensor&) {
    if (fail) {
      throw std::runtime_error("a hook that fails");
    }
  });
  EXPECT_NE(
      errorOf([&] { torch::autograd::grad({loss}, {x}, {}, true); }).find("a hook that fails"),
      std::string::npos);
  EXPECT_EQ(liveBytes(), before);
  fail = false;
  expectSame(torch::autograd::grad({plain.forward({x}).toTensor().sum()}, leavesOf(plain, x)),
             torch::autograd::grad({loss}, leavesOf(remat, x)), "gradient");
  x.remove_hook(hook);
}

TEST_F(ReplayTest, AnErrorInAReplayNamesItsNodeAndTheNextStepIsWhole) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    a = torch.tanh(x @ self.w)
    h = torch.touchy(a * 2.0)
    return torch.exp(h)
)",
                                   {{"w", randomTensor({8, 8})}});
  Module plain = copyOf(module);
  Module remat = optimized(module);
  const at::Tensor x = randomTensor({6, 8}, true);
  const at::Tensor loss = remat.forward({x}).toTensor().sum();
  const int64_t before = liveBytes();
  makeTouchyThrow(true);
  const std::string error =
      errorOf([&] { torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true); });
  makeTouchyThrow(false);
  EXPECT_NE(error.find("touchy was touched"), std::string::npos) << error;
  EXPECT_NE(error.find("while Remat recomputed"), std::string::npos) << error;
  EXPECT_EQ(liveBytes(), before);
  const at::Tensor expected_loss = plain.forward({x}).toTensor().sum();
  expectSame(torch::autograd::grad({expected_loss}, leavesOf(plain, x)),
             torch::autograd::grad({loss}, leavesOf(remat, x)), "gradient");
  expectTrainsAlike(module, {x});
}

TEST_F(ReplayTest, BranchesReplayTheArmThatWasTaken) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor, deep: bool) -> Tensor:
    a = torch.tanh(x @ self.w)
    scale = 2.0
    if deep:
        b = torch.sigmoid(a @ self.w)
        scale = 3.0
        if x.size(0) > 3:
            b = torch.tanh(b) * scale
    else:
        b = a
    c = torch.gelu(b * scale)
    return torch.tanh(c @ self.w)
)",
                                   {{"w", randomTensor({8, 8})}});
  for (const auto& keep : std::vector<std::vector<std::string>>{
           {}, {"prim::If"}, {"aten::sigmoid"}, {"aten::matmul"}, {"aten::tanh"}}) {
    for (const bool deep : {true, false}) {
      for (const int64_t rows : {2, 6}) {
        expectTrainsAlike(module, {randomTensor({rows, 8}, true), deep}, keep, 2);
      }
    }
  }
}

TEST_F(ReplayTest, LoopsRunWholeAndWhatTheyReadIsRecomputed) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor, n: int) -> Tensor:
    h = torch.tanh(x @ self.w)
    pair = (torch.sigmoid(h), torch.exp(h))
    rows = torch.unbind(torch.gelu(h))
    pairs = [(torch.sin(h), h), (torch.cos(h), rows[0])]
    if n > 2:
        pair = (pair[1], pair[0])
    y = h
    for i in range(n):
        y = torch.tanh(y * pair[0] + pair[1] * rows[i])
        y = y * pairs[0][0] + pairs[1][0] * y * pairs[1][1]
    return torch.sigmoid(y) @ self.w
)",
                                   {{"w", randomTensor({8, 8})}});
  expectTrainsAlike(module, {randomTensor({6, 8}, true), 3});
  expectTrainsAlike(module, {randomTensor({6, 8}, true), 0});
}

TEST_F(ReplayTest, ALoopThatSavesAnotherPartOfAValueGetsThatPart) {
  // Inside the loop, row 1 is saved; the loop also reads row 0, which has the same sizes and
  // strides and other bytes.
  const Module module = makeModule(R"(
def forward(self, x: Tensor, n: int) -> Tensor:
    h = torch.tanh(x)
    first = h[0]
    y = first
    for i in range(n):
        y = y * h[1] + first * 2.0
    return torch.sigmoid(y)
)");
  expectTrainsAlike(module, {randomTensor({6, 8}, true), 2});
}

TEST_F(ReplayTest, ALoopThatSavesAValueInAnotherDtypeKeepsIt) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor, n: int) -> Tensor:
    h = torch.tanh(x)
    y = torch.view_as_complex(torch.sigmoid(h))
    for i in range(n):
        y = y * torch.view_as_complex(h)
    return torch.sigmoid(torch.view_as_real(y))
)");
  expectTrainsAlike(module, {randomTensor({6, 2}, true), 2});
}

TEST_F(ReplayTest, ABackwardInsideOfARegionIsNotRunAgain) {
  // Its result is a list of optional tensors, which no plan can mark.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x @ self.w)
    gradient = torch.autograd.grad([torch.sigmoid(h).sum()], [x], create_graph=True)[0]
    if gradient is None:
        return h
    else:
        return torch.sigmoid(torch.tanh(gradient * h) * 2.0)
)",
                                   {{"w", randomTensor({8, 8})}});
  expectTrainsAlike(module, {randomTensor({6, 8}, true)});
}

TEST_F(ReplayTest, NoGradBlocksAreOpaque) {
  Module module = makeModule("", {{"w", randomTensor({8, 8})}});
  addNoGrad(module);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x @ self.w)
    with self.no_grad:
        s = torch.softmax(h @ self.w, -1)
        m = s.max()
    y = torch.sigmoid(h * s) * m
    return torch.tanh(y @ self.w)
)");
  expectTrainsAlike(module, {randomTensor({6, 8}, true)});
  replayedNodes();
  Module remat = optimized(module);
  const at::Tensor x = randomTensor({6, 8}, true);
  step(remat, {x});
  // What is inside the block is not run again; matmul and tanh, and mul, sigmoid, mul behind it
  // are.
  EXPECT_EQ(replayedNodes(), 5);
}

}  // namespace
}  // namespace remat::runtime::test
