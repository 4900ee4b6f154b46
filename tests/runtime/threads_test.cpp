// Training from several threads at once. Under --config=tsan this is the test that matters most.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>
#include <thread>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 50;

/// With LibTorch's own threads out of the way: those here are the test's.
class ThreadsTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    at::set_num_threads(1);
  }
};

/// A layer with dropout. Where its output is zero, there the mask was, and nowhere else.
Module dropping() {
  return makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.dropout(torch.tanh(torch.matmul(x, self.w)), 0.5, True)
    return torch.tanh(torch.tanh(h) * self.v)
)",
                    {{"w", randomTensor({16, 32})}, {"v", randomTensor({32})}});
}

/// The same with the weights of `module` and a given mask.
Module maskedLike(const Module& module) {
  return makeModule(R"(
def forward(self, x: Tensor, mask: Tensor) -> Tensor:
    h = torch.tanh(torch.matmul(x, self.w)) * mask
    return torch.tanh(torch.tanh(h) * self.v)
)",
                    {{"w", module.attr("w").toTensor()}, {"v", module.attr("v").toTensor()}});
}

/// 0 or 1 / (1 - 0.5), as the step that gave `output` drew them.
at::Tensor maskOf(const at::Tensor& output) { return output.ne(0).to(at::kFloat).mul_(2); }

at::Tensor inputOf(int thread, int step) {
  const at::Tensor steps = at::arange(8 * 16, at::kFloat) + (thread * kSteps + step);
  return steps.mul(0.7).sin().reshape({8, 16}).set_requires_grad(true);
}

Tensors leavesOf(const Module& module, const at::Tensor& x) {
  return {x, module.attr("w").toTensor(), module.attr("v").toTensor()};
}

at::Tensor rootGradient() { return at::linspace(-1, 1, 8 * 32).reshape({8, 32}); }

Tensors gradientsOf(const at::Tensor& output, const Tensors& leaves, bool retain = false) {
  return torch::autograd::grad({output}, leaves, {rootGradient()}, retain);
}

struct Taken {
  at::Tensor output;
  Tensors gradients;
};

Taken takeStep(Module& module, int thread, int step) {
  const at::Tensor x = inputOf(thread, step);
  const at::Tensor output = module.forward({x}).toTensor();
  return {output.detach(), gradientsOf(output, leavesOf(module, x))};
}

void update(const Module& module, const Tensors& gradients) {
  const at::NoGradGuard no_grad;
  module.attr("w").toTensor().sub_(gradients[1], 1e-2);
  module.attr("v").toTensor().sub_(gradients[2], 1e-2);
}

using Steps = std::vector<Taken>;

std::vector<Steps> onThreads(const std::function<Taken(int thread, int step)>& take) {
  std::vector<Steps> runs(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int step = 0; step < kSteps; ++step) runs[thread].push_back(take(thread, step));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

/// Asserts that `run` is what the plain module computes with the masks that the outputs show.
void expectPlain(Module plain, const Steps& run, int thread, bool trained) {
  ASSERT_EQ(run.size(), static_cast<size_t>(kSteps));
  for (int step = 0; step < kSteps; ++step) {
    const std::string where = "thread " + std::to_string(thread) + " step " + std::to_string(step);
    const at::Tensor x = inputOf(thread, step);
    const at::Tensor output = plain.forward({x, maskOf(run[step].output)}).toTensor();
    const Tensors gradients = gradientsOf(output, leavesOf(plain, x));
    expectSame({output.detach()}, {run[step].output}, where + " output");
    expectSame(gradients, run[step].gradients, where + " gradient");
    if (trained) update(plain, gradients);
  }
}

/// No two draws of the shared generator are the same one, and about half is dropped.
void expectOwnMasks(const std::vector<Steps>& runs) {
  std::set<std::string> masks;
  for (const Steps& run : runs) {
    for (const Taken& taken : run) {
      const at::Tensor kept = taken.output.ne(0).contiguous();
      masks.emplace(static_cast<const char*>(kept.data_ptr()), kept.numel());
      EXPECT_NEAR(kept.to(at::kFloat).mean().item<double>(), 0.5, 0.2);
    }
  }
  EXPECT_EQ(masks.size(), static_cast<size_t>(kThreads * kSteps));
}

TEST_F(ThreadsTest, EachTrainsAModuleOfItsOwn) {
  const Module module = dropping();
  std::vector<Module> modules;
  modules.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) modules.push_back(optimized(module));
  replayedNodes();
  const std::vector<Steps> runs = onThreads([&](int thread, int step) {
    Taken taken = takeStep(modules[thread], thread, step);
    update(modules[thread], taken.gradients);
    return taken;
  });
  // Two tanh, the mask and the dropout at least.
  EXPECT_GE(replayedNodes(), kThreads * kSteps * 4);
  expectOwnMasks(runs);
  for (int thread = 0; thread < kThreads; ++thread) {
    expectPlain(maskedLike(module), runs[thread], thread, /*trained=*/true);
  }
}

TEST_F(ThreadsTest, AllTrainOneModule) {
  const Module module = dropping();
  Module shared = optimized(module);
  replayedNodes();
  const std::vector<Steps> runs =
      onThreads([&](int thread, int step) { return takeStep(shared, thread, step); });
  EXPECT_GE(replayedNodes(), kThreads * kSteps * 4);
  expectOwnMasks(runs);
  for (int thread = 0; thread < kThreads; ++thread) {
    expectPlain(maskedLike(module), runs[thread], thread, /*trained=*/false);
  }
}

TEST_F(ThreadsTest, BackwardsOfOneForwardMeet) {
  const Module module = dropping();
  Module shared = optimized(module);
  const at::Tensor x = inputOf(0, 0);
  const at::Tensor output = shared.forward({x}).toTensor();
  const std::vector<Steps> runs = onThreads([&](int, int) {
    return Taken{output.detach(), gradientsOf(output, leavesOf(shared, x), /*retain=*/true)};
  });
  Module plain = maskedLike(module);
  const at::Tensor expected = plain.forward({x, maskOf(output)}).toTensor();
  const Tensors gradients = gradientsOf(expected, leavesOf(plain, x));
  for (const Steps& run : runs) {
    for (const Taken& taken : run) expectSame(gradients, taken.gradients, "gradient");
  }
}

TEST_F(ThreadsTest, TheBackwardMayRunOnAnotherThread) {
  const Module module = dropping();
  Module shared = optimized(module);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  for (int thread = 0; thread < kThreads; ++thread) {
    inputs.push_back(inputOf(thread, 0));
    outputs.push_back(shared.forward({inputs.back()}).toTensor());
  }
  const std::vector<Steps> runs = onThreads([&](int thread, int step) {
    const bool last = step + 1 == kSteps;
    return Taken{outputs[thread].detach(),
                 gradientsOf(outputs[thread], leavesOf(shared, inputs[thread]), !last)};
  });
  for (int thread = 0; thread < kThreads; ++thread) {
    Module plain = maskedLike(module);
    const at::Tensor expected = plain.forward({inputs[thread], maskOf(outputs[thread])}).toTensor();
    const Tensors gradients = gradientsOf(expected, leavesOf(plain, inputs[thread]));
    for (const Taken& taken : runs[thread]) expectSame(gradients, taken.gradients, "gradient");
  }
}

}  // namespace
}  // namespace remat::runtime::test
