#include "tools/device_budget.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>

namespace remat::tools {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMiB = int64_t{1} << 20;

/// 1000 bytes of parameters (250 elements), 12 of buffers.
torch::jit::Module model() {
  torch::jit::Module module("Model");
  module.register_parameter("weight", at::ones({250}).set_requires_grad(true), /*is_buffer=*/false);
  module.register_buffer("count", at::zeros({3}));
  return module;
}

TEST(DeviceBudgetTest, AShareIsOfTheDevicesTotalAndTheContextIsRead) {
  const DeviceMemory memory{10 * kGiB, 8 * kGiB, kGiB};
  const MemoryCapacity capacity = readCapacity({0, 0.9}, memory);
  EXPECT_EQ(capacity.bytes, 9 * kGiB);
  EXPECT_EQ(capacity.outside, kGiB) << "neither free nor the allocator's";
  EXPECT_EQ(capacity.rounding, 512);
  EXPECT_EQ(readCapacity({3 * kGiB, 0}, memory).bytes, 3 * kGiB);
  EXPECT_EQ(readCapacity({0, 1}, {10 * kGiB, 8 * kGiB, kGiB, kMiB}).outside, kGiB + kMiB)
      << "workspaces are the allocator's, and no tensor's";
}

TEST(DeviceBudgetTest, TheSumOfAGpu) {
  const MemoryCapacity capacity = readCapacity({0, 1}, {kGiB, kGiB / 2, kGiB / 4});
  const DeviceBudget budget = deviceBudget(capacity, "adam", kMiB, model(), {at::zeros({129})});
  // Rounded as the allocator there does: 1024 of parameters, 512 of the buffer, 1024 of the input.
  const int64_t fixed = kGiB / 4 + 1024 + 512 + 1024 + int64_t{250} * 8 + kMiB;
  EXPECT_EQ(budget.fixed_bytes, fixed);
  const auto rest = static_cast<double>(kGiB - fixed);
  EXPECT_NEAR(static_cast<double>(budget.step_bytes), (1 - kFragmentationShare) * rest, 1);
  EXPECT_NEAR(static_cast<double>(budget.memoryFor(budget.step_bytes)), kGiB, 2);
  for (const char* const line : {"context, libraries, others", "fragmentation (5 %)", "= left"}) {
    EXPECT_NE(budget.text.find(line), std::string::npos) << line << "\n" << budget.text;
  }
}

TEST(DeviceBudgetTest, NothingIsLeftOfADeviceThatIsFull) {
  const MemoryCapacity capacity = readCapacity({kMiB, 0}, {kGiB, kGiB / 2, 0});
  const DeviceBudget budget = deviceBudget(capacity, "sgd", 0, model(), {});
  EXPECT_LT(budget.step_bytes, 0);
}

TEST(DeviceBudgetTest, OnTheCpuSizesAreAsTheyAre) {
  MemoryCapacity capacity;
  capacity.bytes = kMiB;
  const DeviceBudget budget = deviceBudget(capacity, "sgd", 0, model(), {});
  EXPECT_EQ(budget.step_bytes, kMiB - 1000 - 12);
  EXPECT_EQ(budget.memoryFor(budget.step_bytes), kMiB);
  EXPECT_EQ(budget.text.find("fragmentation ("), std::string::npos);
  EXPECT_EQ(budget.text.find("context,"), std::string::npos) << budget.text;
}

}  // namespace
}  // namespace remat::tools
