#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/dropout.h"
#include "runtime/generator_state.h"
#include "runtime/repeatable_mask.h"
#include "tests/runtime/cuda/cuda_test.h"

namespace remat::runtime::test {
namespace {

using GeneratorCudaTest = CudaTest;
using SeveralDevicesCudaTest = CudaTestOf<2>;

at::Tensor nextDraw(int device = 0) {
  return at::rand({8}, at::TensorOptions().device(cuda(device))).cpu();
}

TEST_F(GeneratorCudaTest, DropoutDrawsAndRoundsAsTheFusedKernel) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{1}, {7}, {33, 65}, {512, 1024}}) {
      for (const double p : {0.1, 0.5, 0.9}) {
        const at::Tensor given = randomTensor(sizes, false, dtype).to(cuda());
        const auto run = [&](const std::function<at::Tensor(const at::Tensor&)>& dropout) {
          at::manual_seed(3);
          const at::Tensor x = given.clone().set_requires_grad(true);
          const at::Tensor y = dropout(x);
          y.backward(y.detach().cos());
          return Tensors{y.detach(), x.grad(), nextDraw()};
        };
        const Tensors expected = run([&](const at::Tensor& x) { return at::dropout(x, p, true); });
        const Tensors actual = run([&](const at::Tensor& x) {
          return applyDropout(x, dropoutMask(x, p, true, std::nullopt), p, true);
        });
        expectSame(expected, actual, "p " + std::to_string(p));
        const Tensors repeated = run([&](const at::Tensor& x) {
          at::Tensor mask;
          const RepeatableDraw draw(cuda(), [&](at::Generator generator) {
            mask = dropoutMask(x, p, true, std::move(generator));
          });
          at::Tensor again;
          draw.again([&](at::Generator generator) {
            again = dropoutMask(x, p, true, std::move(generator));
          });
          EXPECT_TRUE(at::equal(mask, again));
          return applyDropout(x, again, p, true);
        });
        expectSame(expected, repeated, "repeated, p " + std::to_string(p));
      }
    }
  }
}

TEST_F(GeneratorCudaTest, AMaskIsTheSameForAnInputThatLiesElsewhere) {
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    const at::Tensor room = at::zeros({4096 + 8}, at::TensorOptions().device(cuda()).dtype(dtype));
    for (const int64_t offset : {0, 1, 2, 4}) {
      const at::Tensor x = room.narrow(0, offset, 4096);
      at::manual_seed(6);
      const at::Tensor expected = std::get<1>(at::native_dropout(x, 0.5, true));
      at::manual_seed(6);
      at::Tensor mask;
      const RepeatableMask repeatable(x, 0.5, mask);
      expectSame({expected.cpu()}, {mask.cpu()}, "drawn, offset " + std::to_string(offset));
      for (const int64_t moved : {0, 1, 2, 4}) {
        expectSame({expected.cpu()}, {repeatable.again(room.narrow(0, moved, 4096)).cpu()},
                   "again, from " + std::to_string(offset) + " at " + std::to_string(moved));
      }
    }
  }
}

TEST_F(GeneratorCudaTest, ADrawLeavesTheRecurrentNetsSeedAlone) {
  // The flag says that cuDNN's dropout state is to be made anew; asking sets it to no.
  const at::Generator generator = at::globalContext().defaultGenerator(cuda());
  auto* const impl = at::check_generator<at::CUDAGeneratorImpl>(generator);
  impl->reset_rnn_state();
  const RepeatableDraw draw(cuda(), [&](at::Generator drawn) {
    at::empty({8}, at::TensorOptions().device(cuda())).bernoulli_(0.5, std::move(drawn));
  });
  EXPECT_FALSE(impl->reset_rnn_state());
}

TEST_F(GeneratorCudaTest, ARegionWithDropoutTrainsAlike) {
  expectTrainsAlike(droppingLayers(), {onCuda(randomTensor({32, 64}, true))});
  expectTrainsAlike(droppingLayers(), {onCuda(randomTensor({32, 64}, true))}, {"aten::matmul"});
}

/// A training step, captured: gradients land in the parameters' and the input's `grad`.
class CapturedStep {
 public:
  explicit CapturedStep(Module module) : module_(std::move(module)) {
    input_ = onCuda(randomTensor({32, 64}, true));
    const c10::cuda::CUDAStreamGuard guard(stream_);
    for (int i = 0; i < 3; ++i) {  // warm-up, as captures need it
      clear();
      run();
    }
    clear();
    stream_.synchronize();
  }

  void capture() {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    clear();  // else the graph would add to what is there
    graph_.capture_begin();
    try {
      run();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (const c10::Error&) {
        // The capture is broken, which the first error says better.
      }
      throw;
    }
    graph_.capture_end();
  }

  /// The results after at::manual_seed(seed), of the graph or of eager execution.
  Tensors replayed(int seed) {
    at::manual_seed(seed);
    graph_.replay();
    return results();
  }
  Tensors uncaptured(int seed) {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    clear();
    at::manual_seed(seed);
    run();
    return results();
  }

 private:
  void run() {
    output_ = module_.forward({input_}).toTensor();
    torch::autograd::backward({output_.sum()}, {});
    output_ = output_.detach();
  }
  void clear() {
    input_.mutable_grad() = at::Tensor();
    for (const at::Tensor& parameter : module_.parameters()) {
      parameter.mutable_grad() = at::Tensor();
    }
  }
  Tensors results() const {
    c10::cuda::device_synchronize();
    Tensors all{output_.cpu(), input_.grad().cpu()};
    for (const at::Tensor& parameter : module_.parameters()) all.push_back(parameter.grad().cpu());
    return all;
  }

  Module module_;
  at::Tensor input_;
  at::Tensor output_;
  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  at::cuda::CUDAGraph graph_;
};

TEST_F(GeneratorCudaTest, ACapturedStepDrawsAnewWhenItRunsAndRepeatsItsOwnDraws) {
  const Module module = droppingLayers();
  Tensors expected[3];
  {
    at::manual_seed(1);
    CapturedStep eager(copyOf(module));
    for (int seed = 0; seed < 3; ++seed) expected[seed] = eager.uncaptured(seed);
  }
  at::manual_seed(1);
  CapturedStep remat(optimized(module));
  expectSame(expected[0], remat.uncaptured(0), "not captured");
  remat.capture();
  for (int seed = 0; seed < 3; ++seed) {
    expectSame(expected[seed], remat.replayed(seed), "captured, seed " + std::to_string(seed));
  }
  EXPECT_FALSE(at::equal(expected[0][0], expected[1][0]));
}

TEST_F(GeneratorCudaTest, ARegionWithoutDrawsIsRightInACapture) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(torch.matmul(torch.sin(x), self.w)) * torch.cos(x))
)",
                                   {{"w", onCuda(randomTensor({64, 64}))}});
  at::manual_seed(1);
  CapturedStep remat(optimized(module));
  const Tensors expected = remat.uncaptured(0);
  at::manual_seed(1);
  CapturedStep captured(optimized(module));
  captured.capture();
  expectSame(expected, captured.replayed(0), "captured");
}

TEST_F(GeneratorCudaTest, ForwardAndBackwardInTwoCapturesAreRefused) {
  Module remat = optimized(droppingLayers());
  const at::Tensor x = onCuda(randomTensor({32, 64}, true));
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  for (int i = 0; i < 3; ++i) remat.forward({x}).toTensor().sum().backward();
  stream.synchronize();
  at::cuda::CUDAGraph forward;
  forward.capture_begin();
  const at::Tensor loss = remat.forward({x}).toTensor().sum();
  forward.capture_end();
  at::cuda::CUDAGraph backward;
  backward.capture_begin(forward.pool());
  const std::string error = errorOf([&] { loss.backward(); });
  try {
    backward.capture_end();
  } catch (const c10::Error&) {
    // An empty or a broken capture: either is fine.
  }
  EXPECT_NE(error.find("Capture forward and backward in one graph"), std::string::npos) << error;
  remat.forward({x}).toTensor().sum().backward();  // the process is usable
  stream.synchronize();
}

TEST_F(SeveralDevicesCudaTest, ARegionDrawsOnEach) {
  const Module module =
      makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.dropout(torch.tanh(torch.matmul(x, self.w)), 0.5, True)
    g = (torch.sigmoid(h) * h).to(self.v.device)
    return torch.tanh(torch.sin(torch.dropout(torch.tanh(g * self.v), 0.25, True)))
)",
                 {{"w", onCuda(randomTensor({64, 64}))}, {"v", onCuda(randomTensor({64}), 1)}});
  const auto draws = [&](Module& trained) {
    at::manual_seed(4);
    const at::Tensor x = onCuda(randomTensor({32, 64}, true));
    at::manual_seed(5);
    const at::Tensor y = trained.forward({x}).toTensor();
    y.sum().backward();
    return Tensors{y.detach().cpu(), x.grad().cpu(), nextDraw(0), nextDraw(1)};
  };
  Module plain = copyOf(module);
  Module remat = optimized(module);
  expectSame(draws(plain), draws(remat), "result");
}

}  // namespace
}  // namespace remat::runtime::test
