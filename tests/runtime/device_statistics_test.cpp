#include "runtime/device_statistics.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

/// An allocator that only tells numbers.
class TellingAllocator final : public c10::DeviceAllocator {
 public:
  using Statistics = c10::CachingDeviceAllocator::DeviceStats;

  c10::DataPtr allocate(size_t /*bytes*/) override { return {}; }
  void copy_data(void* /*dest*/, const void* /*src*/, size_t /*count*/) const override {}
  bool initialized() override { return initialized_; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*pointer*/, c10::Stream /*stream*/) override {}
  Statistics getDeviceStats(c10::DeviceIndex device) override {
    TORCH_CHECK(device == 1, "asked for device ", int(device));
    return statistics_;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {
    for (auto* stats : {&statistics_.allocated_bytes, &statistics_.requested_bytes,
                        &statistics_.reserved_bytes}) {
      for (auto& stat : *stats) stat.reset_peak();
    }
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {100U + device, 200};
  }

  bool initialized_ = true;
  Statistics statistics_;
};

const c10::Device kDevice(c10::kPrivateUse1, 1);

TellingAllocator& allocator() {
  static auto* const instance = [] {
    auto* const made = new TellingAllocator;
    c10::SetAllocator(c10::kPrivateUse1, made);
    return made;
  }();
  return *instance;
}

TEST(DeviceStatisticsTest, AreTheAllocatorsSums) {
  TellingAllocator& told = allocator();
  told.statistics_ = {};
  // Blocks are counted once by their pool and once in the sum.
  for (const size_t kind : {0, 1}) {
    told.statistics_.allocated_bytes[kind].increase(1024);
    told.statistics_.requested_bytes[kind].increase(1000);
    told.statistics_.reserved_bytes[kind].increase(4096);
    told.statistics_.inactive_split_bytes[kind].increase(1024);
    told.statistics_.allocated_bytes[kind].decrease(512);
    told.statistics_.requested_bytes[kind].decrease(400);
  }
  told.statistics_.num_alloc_retries = 3;
  told.statistics_.num_ooms = 2;
  const DeviceStatistics statistics = deviceStatistics(kDevice);
  EXPECT_EQ(statistics.allocated, 512);
  EXPECT_EQ(statistics.allocated_peak, 1024);
  EXPECT_EQ(statistics.requested, 600);
  EXPECT_EQ(statistics.requested_peak, 1000);
  EXPECT_EQ(statistics.reserved, 4096);
  EXPECT_EQ(statistics.reserved_peak, 4096);
  EXPECT_EQ(statistics.inactive_split, 1024);
  EXPECT_EQ(statistics.retries, 3);
  EXPECT_EQ(statistics.out_of_memory, 2);
  EXPECT_EQ(statistics.fragmentation(), 0.25);
  resetDevicePeaks(kDevice);
  EXPECT_EQ(deviceStatistics(kDevice).allocated_peak, 512);
  EXPECT_EQ(deviceStatistics(kDevice).requested_peak, 600);
}

TEST(DeviceStatisticsTest, AreZeroBeforeTheFirstAllocation) {
  TellingAllocator& told = allocator();
  told.statistics_ = {};
  told.statistics_.allocated_bytes[0].increase(1);
  told.initialized_ = false;
  EXPECT_EQ(deviceStatistics(kDevice).allocated, 0);
  EXPECT_EQ(deviceStatistics(kDevice).fragmentation(), 0);
  resetDevicePeaks(kDevice);
  told.initialized_ = true;
  EXPECT_EQ(deviceStatistics(kDevice).allocated, 1);
}

TEST(DeviceStatisticsTest, TheCapacityIsTheDevices) {
  allocator();
  EXPECT_EQ(deviceCapacity(kDevice).free, 101);
  EXPECT_EQ(deviceCapacity(kDevice).total, 200);
}

TEST(DeviceStatisticsTest, TheCpuHasNone) {
  for (const auto& ask : std::vector<std::function<void()>>{
           [] { deviceStatistics(c10::kCPU); },
           [] { resetDevicePeaks(c10::kCPU); },
           [] { deviceCapacity(c10::kCPU); },
           [] { deviceStatistics(c10::kMeta); },
       }) {
    EXPECT_NE(errorOf(ask).find("has no caching allocator"), std::string::npos);
  }
}

}  // namespace
}  // namespace remat::runtime::test
