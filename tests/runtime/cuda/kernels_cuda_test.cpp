// Kernels that choose: cuDNN's convolutions and recurrent nets, LibTorch's norms and attention.

#include "runtime/region_program.h"
#include "tests/runtime/cuda/cuda_test.h"

namespace remat::runtime::test {
namespace {

class KernelsCudaTest : public CudaTest {
 protected:
  void TearDown() override {
    at::globalContext().setBenchmarkCuDNN(false);
    CudaTest::TearDown();
  }
};

Module convolutions() {
  return makeModule(
      R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.conv2d(torch.sin(x), self.w, None, [1, 1], [1, 1])
    h = torch.relu(torch.batch_norm(h, self.g, self.b, self.m, self.s, True, 0.1, 1e-5, True))
    h = torch.conv2d(torch.max_pool2d(h, [2, 2], [2, 2]), self.w, None, [1, 1], [1, 1])
    return torch.tanh(torch.sin(h))
)",
      {{"w", onCuda(randomTensor({8, 8, 3, 3}))},
       {"g", onCuda(randomTensor({8}))},
       {"b", onCuda(randomTensor({8}))}},
      {{"m", onCuda(at::zeros({8}))}, {"s", onCuda(at::ones({8}))}});
}

TEST_F(KernelsCudaTest, ConvolutionsAndNormsAreReplayedBitForBit) {
  const std::vector<IValue> inputs{onCuda(randomTensor({4, 8, 32, 32}, true))};
  expectTrainsAlike(convolutions(), inputs);
  expectTrainsAlike(convolutions(), inputs, {"aten::conv2d"});
}

TEST_F(KernelsCudaTest, AutotuningIsRefusedWhereBitsAreToBeTheSame) {
  Module remat = optimized(convolutions());
  const at::Tensor x = onCuda(randomTensor({4, 8, 32, 32}, true));
  at::globalContext().setBenchmarkCuDNN(true);
  EXPECT_NE(errorOf([&] { remat.forward({x}); }).find("turn autotuning off"), std::string::npos);
  at::globalContext().setDeterministicCuDNN(false);
  remat.forward({x}).toTensor().sum().backward();
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

Module recurrent(const std::string& dropout, const std::string& train) {
  return makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x)
    out, hn, cn = torch.lstm(h, [self.h, self.c], [self.wi, self.wh, self.bi, self.bh, self.wi2, self.wh, self.bi, self.bh], True, 2, )" +
                        dropout + ", " + train + R"(, False, False)
    return torch.dropout(torch.tanh(torch.sin(out)), 0.3, True) + cn[0]
)",
                    {{"h", onCuda(randomTensor({2, 3, 8}))},
                     {"c", onCuda(randomTensor({2, 3, 8}))},
                     {"wi", onCuda(randomTensor({32, 8}))},
                     {"wi2", onCuda(randomTensor({32, 8}))},
                     {"wh", onCuda(randomTensor({32, 8}))},
                     {"bi", onCuda(randomTensor({32}))},
                     {"bh", onCuda(randomTensor({32}))}});
}

TEST_F(KernelsCudaTest, ARecurrentNetWithDropoutKeepsItsDraws) {
  // It is run once: nothing of it is recomputed (RegionProgram says so without a device), and
  // the draws of dropout around it don't have cuDNN draw its seed anew.
  const std::vector<IValue> inputs{onCuda(randomTensor({5, 3, 8}, true))};
  expectTrainsAlike(recurrent("0.4", "True"), inputs);
  expectTrainsAlike(recurrent("0.0", "True"), inputs);
}

TEST_F(KernelsCudaTest, AttentionTakesTheForwardsKernel) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    q = torch.sin(x)
    y = torch.scaled_dot_product_attention(q, torch.cos(q), q, None, 0.0, True)
    return torch.tanh(torch.sin(y) * 2.0)
)");
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const std::vector<IValue> inputs{
        onCuda(randomTensor({2, 4, 64, 32}, false, dtype)).set_requires_grad(true)};
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    expectTrainsAlike(module, inputs);
    expectTrainsAlike(module, inputs, {"inside of aten::scaled_dot_product_attention"});
    at::globalContext().setDeterministicAlgorithms(false, false);
  }
}

}  // namespace
}  // namespace remat::runtime::test
