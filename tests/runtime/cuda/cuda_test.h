#pragma once

#include <ATen/ATen.h>

#include <cstdlib>

#include "runtime/statistics.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {

/// Skips its cases, with the reason, where there are fewer than kDevices devices. Algorithms are
/// deterministic, so that results can be compared bit for bit.
template <size_t kDevices>
class CudaTestOf : public RuntimeTest {
 protected:
  void SetUp() override {
    const size_t devices = at::getNumGPUs();
    if (devices < kDevices) {
      GTEST_SKIP() << "needs " << kDevices << " CUDA device(s), here are " << devices;
    }
    // cuBLAS is deterministic with one of two workspace sizes, read with the first product.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    RuntimeTest::SetUp();
    enableStatistics(false);
    at::globalContext().setDeterministicCuDNN(true);
  }
  void TearDown() override {
    at::globalContext().setDeterministicCuDNN(false);
    RuntimeTest::TearDown();
  }
};

using CudaTest = CudaTestOf<1>;

inline c10::Device cuda(int index = 0) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

/// A leaf on the device with the same numbers.
inline at::Tensor onCuda(const at::Tensor& tensor, int index = 0) {
  return tensor.detach().to(cuda(index)).set_requires_grad(tensor.requires_grad());
}

/// Two layers with dropout between and behind them; what is marked by no `keep` is recomputed.
inline Module droppingLayers(int64_t width = 64) {
  return makeModule(
      R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(torch.matmul(x, self.w))
    h = torch.dropout(torch.sigmoid(h), 0.3, True)
    return torch.dropout(torch.sin(torch.matmul(torch.tanh(h), self.v)) * h, 0.15, True)
)",
      {{"w", onCuda(randomTensor({width, width}))}, {"v", onCuda(randomTensor({width, width}))}});
}

}  // namespace remat::runtime::test
