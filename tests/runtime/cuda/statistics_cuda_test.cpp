#include <torch/csrc/autograd/autograd.h>

#include "runtime/device_statistics.h"
#include "runtime/device_timer.h"
#include "tests/runtime/cuda/cuda_test.h"

namespace remat::runtime::test {
namespace {

using StatisticsCudaTest = CudaTest;

TEST_F(StatisticsCudaTest, TheAllocatorRoundsAndKeeps) {
  at::empty({1}, at::TensorOptions().device(cuda()));  // makes the context
  resetDevicePeaks(cuda());
  const DeviceStatistics before = deviceStatistics(cuda());
  constexpr int64_t kFloats = 1'000'001;
  {
    const at::Tensor x = at::empty({kFloats}, at::TensorOptions().device(cuda()));
    const DeviceStatistics during = deviceStatistics(cuda());
    EXPECT_EQ(during.requested - before.requested, kFloats * 4);
    EXPECT_EQ(during.allocated - before.allocated, (kFloats * 4 + 511) / 512 * 512);
  }
  const DeviceStatistics after = deviceStatistics(cuda());
  EXPECT_EQ(after.requested, before.requested);
  EXPECT_EQ(after.requested_peak, before.requested + kFloats * 4);
  EXPECT_EQ(after.allocated_peak, before.allocated + (kFloats * 4 + 511) / 512 * 512);
  EXPECT_GE(after.reserved, after.allocated_peak);
  EXPECT_GE(after.fragmentation(), 0);
  EXPECT_LT(after.fragmentation(), 1);
}

TEST_F(StatisticsCudaTest, TheCapacityIsTheDevices) {
  const DeviceCapacity capacity = deviceCapacity(cuda());
  EXPECT_GT(capacity.free, 0);
  EXPECT_LT(capacity.free, capacity.total);
}

/// Products that take the device much longer than the host takes to queue them.
Module slowLayers() {
  return makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.matmul(torch.tanh(torch.matmul(torch.sin(x), self.w)), self.w)
    return torch.matmul(torch.tanh(h), self.w)
)",
                    {{"w", onCuda(randomTensor({4096, 4096}) / 64)}});
}

TEST_F(StatisticsCudaTest, TimesAreTheDevices) {
  Module remat = optimized(slowLayers());
  const at::Tensor x = onCuda(randomTensor({4096, 4096}, true));
  remat.forward({x}).toTensor().sum().backward();
  takeStatistics();
  enableStatistics(true);
  DeviceTimer step(cuda());
  const at::Tensor y = remat.forward({x}).toTensor();
  DeviceTimer backward(cuda());
  y.sum().backward();
  backward.stop();
  step.stop();
  const StepStatistics taken = takeStatistics();
  enableStatistics(false);
  EXPECT_GT(taken.forward_seconds, 0);
  EXPECT_GT(taken.replay_seconds, 0);
  EXPECT_LT(taken.replay_seconds, backward.seconds());
  EXPECT_LT(taken.forward_seconds + backward.seconds(), step.seconds() * 1.05);
  // Of the forward's three products a replay makes two again.
  EXPECT_NEAR(taken.replay_seconds / taken.forward_seconds, 2.0 / 3, 0.25);
}

}  // namespace
}  // namespace remat::runtime::test
