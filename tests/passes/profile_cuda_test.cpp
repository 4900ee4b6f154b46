#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <vector>

#include "passes/device_memory.h"
#include "passes/max_batch.h"
#include "passes/measured_roofline.h"
#include "passes/remat.h"
#include "passes/retarget.h"
#include "passes/simulator.h"
#include "passes/training_step.h"
#include "runtime/step_clock.h"

namespace remat {
namespace {

const c10::Device kDevice(c10::kCUDA, 0);

bool hasDevice() {
  return c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
         c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() > 0;
}

torch::jit::Module mlp(c10::Device device) {
  torch::jit::Module module("Mlp");
  module.register_parameter("weight", at::full({512, 512}, 0.01, device).set_requires_grad(true),
                            /*is_buffer=*/false);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    x = torch.sigmoid(torch.gelu(torch.matmul(x, self.weight)))
    x = torch.sigmoid(torch.gelu(torch.matmul(x, self.weight)))
    x = torch.sigmoid(torch.gelu(torch.matmul(x, self.weight)))
    x = torch.sigmoid(torch.gelu(torch.matmul(x, self.weight)))
    return torch.matmul(x, self.weight)
)");
  return module;
}

torch::jit::Module convolutions() {
  torch::jit::Module module("Convolutions");
  module.register_parameter("first", at::rand({32, 3, 3, 3}, kDevice).set_requires_grad(true),
                            /*is_buffer=*/false);
  module.register_parameter("second", at::rand({32, 32, 3, 3}, kDevice).set_requires_grad(true),
                            /*is_buffer=*/false);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    x = torch.relu(torch.conv2d(x, self.first, None, [1, 1], [1, 1]))
    x = torch.relu(torch.conv2d(x, self.second, None, [1, 1], [1, 1]))
    x = torch.relu(torch.conv2d(x, self.second, None, [1, 1], [1, 1]))
    return torch.conv2d(x, self.second, None, [1, 1], [1, 1])
)");
  return module;
}

OptimizeOptions onCuda() {
  OptimizeOptions options;
  options.step.device = kDevice.str();
  return options;
}

std::vector<int64_t> valueBytes(const ir::Profile& profile) {
  std::vector<int64_t> bytes;
  for (const ir::StorageProfile& storage : profile.storages) {
    if (storage.role == ir::StorageRole::kValue) bytes.push_back(storage.bytes);
  }
  std::sort(bytes.begin(), bytes.end());
  return bytes;
}

class ProfileCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hasDevice()) GTEST_SKIP() << "no CUDA device is here";
    at::globalContext().lazyInitDevice(c10::kCUDA);
  }
};

TEST_F(ProfileCudaTest, TheSimulatedPeakIsTheAllocators) {
  for (const bool convolve : {false, true}) {
    const at::Tensor input =
        convolve ? at::rand({16, 3, 128, 128}, kDevice) : at::rand({8192, 512}, kDevice);
    const Analysis analysis = analyze(convolve ? convolutions() : mlp(kDevice), {input}, onCuda());
    EXPECT_EQ(analysis.profile.device, "cuda:0");
    EXPECT_EQ(analysis.profile.rounding, kCudaRounding);
    for (const ir::StorageProfile& storage : analysis.profile.storages) {
      EXPECT_EQ(storage.bytes % kCudaRounding, 0);
    }
    Simulator simulator(planningInput(analysis, onCuda()));
    EXPECT_EQ(simulator.evaluate(simulator.keepAll()).peak, analysis.profile.peak_bytes);
    EXPECT_GT(analysis.profile.forwardSeconds(), 0);
    double backward = 0;
    for (const ir::BackwardStep& step : analysis.profile.backward) backward += step.seconds;
    EXPECT_GT(backward, 0);
  }
}

TEST_F(ProfileCudaTest, ABudgetIsKeptAsTheAllocatorMeasuresIt) {
  OptimizeOptions options = onCuda();
  options.budget.fraction = 0.6;
  const OptimizeResult result = optimize(mlp(kDevice), {at::rand({8192, 512}, kDevice)}, options);
  EXPECT_TRUE(result.changed);
  EXPECT_GT(result.measured_peak, 0);
  EXPECT_LE(result.measured_peak, result.plan.budget);
  constexpr double kNear = 0.05;
  EXPECT_NEAR(static_cast<double>(result.measured_peak),
              static_cast<double>(result.plan.predicted_peak),
              kNear * static_cast<double>(result.plan.predicted_peak));
}

TEST_F(ProfileCudaTest, ACpuProfileHasTheBytesOfACudaProfile) {
  const at::Tensor input = at::rand({4096, 512});
  OptimizeOptions cpu;
  cpu.plan_for = "cuda:0";
  cpu.roofline = {67e12, 4.8e12};
  const ir::Profile foretold = analyze(mlp(c10::kCPU), {input}, cpu).profile;
  const ir::Profile recorded = analyze(mlp(kDevice), {input.to(kDevice)}, onCuda()).profile;
  EXPECT_EQ(foretold.slots.size(), recorded.slots.size());
  EXPECT_EQ(valueBytes(foretold), valueBytes(recorded));
}

TEST_F(ProfileCudaTest, ThePeakIsRoundedAsTheAllocatorRounds) {
  const PeakGauge gauge(kDevice);
  at::empty({1000}, at::TensorOptions().dtype(at::kByte).device(kDevice));
  EXPECT_EQ(gauge.bytes(), 1024);
}

TEST_F(ProfileCudaTest, TheDeviceTellsItsMemory) {
  const at::Tensor held = at::empty({1 << 20}, kDevice);
  const DeviceMemory memory = deviceMemory(kDevice);
  EXPECT_GT(memory.total, int64_t{1} << 30);
  EXPECT_LT(memory.free, memory.total);
  EXPECT_GE(memory.reserved, held.nbytes());
  EXPECT_GT(memory.outside(), 0) << "a context takes memory";
}

/// Blocks of a MiB and more may hold up to a MiB more than was asked for, which no line through two
/// batches shows: 1 % is set aside.
TEST_F(ProfileCudaTest, TheLargestBatchFitsAsTheAllocatorMeasuresIt) {
  constexpr int64_t kBudget = int64_t{256} << 20;
  constexpr int64_t kSetAside = kBudget / 100;
  OptimizeOptions options = onCuda();
  options.profile_batches = {1024, 2048};
  const torch::jit::Module module = mlp(kDevice);
  const MaxBatch found = maxBatch(module, {at::rand({4096, 512}, kDevice)}, options,
                                  [](int64_t /*batch*/) { return kBudget - kSetAside; });
  ASSERT_GT(found.batch, 4096);
  OptimizeOptions there = onCuda();
  there.budget.kind = Budget::Kind::kBytes;
  there.budget.bytes = kBudget;
  const OptimizeResult result = optimize(module, {at::rand({found.batch, 512}, kDevice)}, there);
  EXPECT_LE(result.measured_peak, kBudget);
}

TEST_F(ProfileCudaTest, DeterministicStepsHaveTheSameBits) {
  StepOptions options;
  options.device = kDevice.str();
  options.deterministic = true;
  TrainingStep step(convolutions(), {at::rand({16, 3, 128, 128}, kDevice)}, options);
  const StepOutcome first = step.run("forward", true);
  const StepOutcome second = step.run("forward", true);
  ASSERT_EQ(first.gradients.size(), 2U);
  for (size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(first.gradients[i].equal(second.gradients[i]));
  }
}

TEST_F(ProfileCudaTest, TheRooflineIsMeasured) {
  const ir::Roofline roofline = measureRoofline(kDevice, at::kBFloat16);
  EXPECT_GT(roofline.flops, 1e12);
  EXPECT_GT(roofline.bytes, 1e10);
}

TEST_F(ProfileCudaTest, EventsTimeWhatTheStreamDoes) {
  runtime::StepClock clock(kDevice);
  const at::Tensor matrix = at::rand({4096, 4096}, kDevice);
  at::Tensor product = at::mm(matrix, matrix);  // makes handles
  const int32_t begin = clock.now();
  product = at::mm(matrix, matrix);
  const int32_t middle = clock.now();
  for (int i = 0; i < 8; ++i) product = at::mm(matrix, product);
  const int32_t end = clock.now();
  synchronize(kDevice);
  EXPECT_GT(clock.seconds(begin, middle), 0);
  EXPECT_GT(clock.seconds(middle, end), clock.seconds(begin, middle));
}

}  // namespace
}  // namespace remat
