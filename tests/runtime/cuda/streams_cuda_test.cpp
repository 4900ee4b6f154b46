#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include "tests/runtime/cuda/cuda_test.h"

namespace remat::runtime::test {
namespace {

using StreamsCudaTest = CudaTest;
using c10::cuda::CUDAStream;

/// Long enough that what doesn't wait is seen to read too early: some milliseconds.
constexpr int64_t kCycles = 20'000'000;

CUDAStream sideStream(int64_t index) {
  static const std::vector<CUDAStream> streams = {c10::cuda::getStreamFromPool(),
                                                  c10::cuda::getStreamFromPool(),
                                                  c10::cuda::getStreamFromPool()};
  return streams.at(index);
}

void wait(const CUDAStream& stream, const CUDAStream& other) {
  at::cuda::CUDAEvent event;
  event.record(other);
  event.block(stream);
}

/// As in streams_test: what follows runs on another stream, which has waited for this one.
struct SwitchStream : public torch::autograd::Function<SwitchStream> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x,
                            int64_t index) {
    const CUDAStream to = sideStream(index);
    wait(to, c10::cuda::getCurrentCUDAStream());
    c10::cuda::CUDACachingAllocator::recordStream(x.storage().data_ptr(), to);
    c10::cuda::setCurrentCUDAStream(to);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    // The other stream's replays come late.
    at::cuda::sleep(kCycles);
    return {gradients[0], at::Tensor()};
  }
};

const torch::jit::RegisterOperators kSwitch({torch::jit::Operator(
    "aten::switch_stream(Tensor x, int stream) -> Tensor",
    [](torch::jit::Stack& stack) {
      const int64_t index = torch::jit::pop(stack).toInt();
      const at::Tensor x = torch::jit::pop(stack).toTensor();
      stack.emplace_back(SwitchStream::apply(x, index));
    },
    c10::AliasAnalysisKind::FROM_SCHEMA)});

/// A step whose forward begins on a side stream, late, and whose backward is called from another.
StepResult lateStep(Module& module, const at::Tensor& x, int seed) {
  const auto forward = [&](std::vector<IValue> inputs) {
    const CUDAStream before = c10::cuda::getCurrentCUDAStream();
    const CUDAStream side = sideStream(0);
    wait(side, before);
    IValue output;
    {
      const c10::cuda::CUDAStreamGuard guard(side);
      at::cuda::sleep(kCycles);
      output = module.forward(std::move(inputs));
    }
    for (int i = 0; i < 3; ++i) wait(before, sideStream(i));
    return output;
  };
  StepResult result = step(module, {x}, seed, forward);
  c10::cuda::device_synchronize();
  return result;
}

void expectLateStepsAlike(const Module& module, const std::vector<std::string>& keep) {
  Module plain = copyOf(module);
  Module remat = optimized(module, keep);
  const at::Tensor x = onCuda(randomTensor({256, 512}, true));
  for (int i = 0; i < 4; ++i) {
    const StepResult expected = lateStep(plain, x, i);
    expectSame(expected, lateStep(remat, x, i), "step " + std::to_string(i));
  }
}

TEST_F(StreamsCudaTest, ARegionTrainsOnASideStream) {
  expectLateStepsAlike(droppingLayers(512), {});
  expectLateStepsAlike(droppingLayers(512), {"aten::matmul"});
}

TEST_F(StreamsCudaTest, AValueMayBeMadeOnOneStreamAndReadOnAnother) {
  const Module module =
      makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(torch.matmul(x, self.w))
    a = torch.sin(torch.sigmoid(h) * self.v)
    g = torch.switch_stream(h, 1)
    b = torch.sin(g) * h
    return torch.switch_stream(a, 2) * b * torch.cos(h)
)",
                 {{"w", onCuda(randomTensor({512, 512}))}, {"v", onCuda(randomTensor({512}))}});
  expectLateStepsAlike(module, {"aten::switch_stream"});
  expectLateStepsAlike(module, {"aten::switch_stream", "aten::matmul"});
}

TEST_F(StreamsCudaTest, ASavedTensorMayBeUnpackedOnAnyStream) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(torch.matmul(x, self.w))
    return h * torch.sin(h)
)",
                                   {{"w", onCuda(randomTensor({512, 512}))}});
  const at::Tensor x = onCuda(randomTensor({256, 512}, true));
  const auto gradients = [&](Module trained, const CUDAStream& stream) {
    const CUDAStream main = c10::cuda::getCurrentCUDAStream();
    at::cuda::sleep(kCycles);
    const at::Tensor y = trained.forward({x}).toTensor();
    const at::Tensor root = at::ones_like(y);
    torch::autograd::variable_list result;
    {
      const c10::cuda::CUDAStreamGuard guard(stream);
      if (stream != main) {
        // The gradient is the caller's to order; the node's own values are not.
        c10::cuda::CUDACachingAllocator::recordStream(root.storage().data_ptr(), stream);
        const at::Tensor own = at::ones_like(y);
        result = (*y.grad_fn())({own});
      } else {
        result = (*y.grad_fn())({root});
      }
    }
    c10::cuda::device_synchronize();
    return Tensors{result.at(0).detach().cpu(), result.at(1).detach().cpu()};
  };
  // Recomputed from what was there before, and from a boundary that the forward makes late.
  for (const std::vector<std::string>& keep :
       std::vector<std::vector<std::string>>{{}, {"aten::matmul"}}) {
    const Module remat = optimized(module, keep);
    expectSame(gradients(remat, c10::cuda::getCurrentCUDAStream()), gradients(remat, sideStream(2)),
               "gradient");
  }
}

}  // namespace
}  // namespace remat::runtime::test
