// Nothing that Remat does has the host wait for the device.

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/runtime/cuda/cuda_test.h"
#include "tests/runtime/cuda/interposed_calls.h"

namespace remat::runtime::test {
namespace {

using SynchronisationCudaTest = CudaTest;
using Calls = std::map<std::string, int>;

TEST(InterpositionTest, LibTorchsCallsAreCounted) {
  const int before = deviceCountCalls();
  try {
    c10::cuda::device_count_ensure_non_zero();
  } catch (const c10::Error&) {
    // No device here: it was asked all the same.
  }
  EXPECT_GT(deviceCountCalls(), before);
}

TEST_F(SynchronisationCudaTest, WaitsAreSeen) {
  const at::Tensor x = onCuda(randomTensor({8}));
  takeWaitingCalls();
  x.sum().item<float>();
  EXPECT_FALSE(takeWaitingCalls().empty());
  x.sin();
  EXPECT_EQ(takeWaitingCalls(), Calls());
  c10::cuda::device_synchronize();
  EXPECT_EQ(takeWaitingCalls(), (Calls{{"cudaDeviceSynchronize", 1}}));
}

/// The calls of a step in the steady state.
Calls callsOfAStep(Module module, const at::Tensor& x) {
  Calls calls;
  for (int i = 0; i < 5; ++i) {
    for (const at::Tensor& parameter : module.parameters()) {
      parameter.mutable_grad() = at::Tensor();
    }
    c10::cuda::device_synchronize();
    takeWaitingCalls();
    const at::Tensor y = module.forward({x}).toTensor();
    torch::autograd::backward({y.sum()}, {});
    calls = takeWaitingCalls();
  }
  return calls;
}

/// Counting replays reads the clock of the device, so that is another step.
void expectReplays(Module module, const at::Tensor& x) {
  enableStatistics(true);
  torch::autograd::backward({module.forward({x}).toTensor().sum()}, {});
  EXPECT_GT(replayedNodes(), 0);
  enableStatistics(false);
}

void expectNoWaits(const Module& module, const at::Tensor& x) {
  expectReplays(optimized(module), x);
  EXPECT_EQ(callsOfAStep(copyOf(module), x), Calls()) << "plain";
  EXPECT_EQ(callsOfAStep(optimized(module), x), Calls()) << "everything recomputed";
  EXPECT_EQ(callsOfAStep(optimized(module, {"aten::matmul", "aten::conv2d"}), x), Calls())
      << "costly values kept";
}

TEST_F(SynchronisationCudaTest, LayersWithDropout) {
  expectNoWaits(droppingLayers(), onCuda(randomTensor({32, 64}, true)));
}

TEST_F(SynchronisationCudaTest, ConvolutionsWithNorms) {
  for (const char* training : {"True", "False"}) {
    const Module module = makeModule(std::string(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.conv2d(torch.sin(x), self.w, None, [1, 1], [1, 1])
    h = torch.relu(torch.batch_norm(h, self.g, self.b, self.m, self.s, )") +
                                         training + R"(, 0.1, 1e-5, True))
    return torch.tanh(torch.max_pool2d(h, [2, 2], [2, 2]))
)",
                                     {{"w", onCuda(randomTensor({8, 8, 3, 3}))},
                                      {"g", onCuda(randomTensor({8}))},
                                      {"b", onCuda(randomTensor({8}))}},
                                     {{"m", onCuda(at::zeros({8}))}, {"s", onCuda(at::ones({8}))}});
    expectNoWaits(module, onCuda(randomTensor({4, 8, 32, 32}, true)));
  }
}

TEST_F(SynchronisationCudaTest, AttentionWhoseInternalsAreMadeAgain) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    q = torch.sin(x)
    y = torch.scaled_dot_product_attention(q, torch.cos(q), q, None, 0.0, True)
    return torch.tanh(torch.sin(y))
)");
  const at::Tensor x = onCuda(randomTensor({2, 4, 64, 32}, true));
  expectNoWaits(module, x);
  EXPECT_EQ(callsOfAStep(optimized(module, {"inside of aten::scaled_dot_product_attention"}), x),
            Calls());
}

}  // namespace
}  // namespace remat::runtime::test
