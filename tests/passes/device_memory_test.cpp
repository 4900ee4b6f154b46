#include "passes/device_memory.h"

#include <ATen/Functions.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include "tests/runtime/fake_device.h"

namespace remat {
namespace {

constexpr c10::DeviceType kFake = c10::DeviceType::PrivateUse1;
constexpr int64_t kRounding = 512;
constexpr int64_t kTotal = 10000000;
constexpr int64_t kOthers = 70000;    ///< context and other programs
constexpr int64_t kReserved = 20480;  ///< by the allocator, in use or not

/// Counts as a device's caching allocator does, without memory behind it.
class FakeAllocator final : public c10::DeviceAllocator {
 public:
  void take(int64_t bytes) {
    requested_.increase(bytes);
    allocated_.increase((bytes + kRounding - 1) / kRounding * kRounding);
  }
  void give(int64_t bytes) {
    requested_.decrease(bytes);
    allocated_.decrease((bytes + kRounding - 1) / kRounding * kRounding);
  }

  c10::DataPtr allocate(size_t /*bytes*/) override { return {}; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.requested_bytes[kAggregate] = requested_;
    stats.allocated_bytes[kAggregate] = allocated_;
    stats.reserved_bytes[kAggregate].increase(kReserved);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {
    requested_.reset_peak();
    allocated_.reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) override {
    return {kTotal - kOthers - kReserved, kTotal};
  }

 private:
  c10::CachingAllocator::Stat requested_;
  c10::CachingAllocator::Stat allocated_;
};

FakeAllocator& fake() {
  static FakeAllocator* const allocator = [] {
    auto* const made = new FakeAllocator;
    c10::SetAllocator(kFake, made);
    return made;
  }();
  return *allocator;
}

TEST(DeviceMemoryTest, ThePeakIsOfWhatIsAllocatedAsTheDeviceRoundsIt) {
  FakeAllocator& allocator = fake();
  allocator.take(100);
  const int64_t waited = testing::FakeDevice::synchronisations();
  const PeakGauge gauge(c10::Device(kFake, 0));
  EXPECT_EQ(testing::FakeDevice::synchronisations(), waited + 1) << "what is queued may still free";
  EXPECT_EQ(gauge.bytes(), 0) << "what was there before";
  allocator.take(1000);
  allocator.take(1);
  allocator.give(1000);
  EXPECT_EQ(gauge.bytes(), 1024 + 512);
  const PeakGauge next(c10::Device(kFake, 0));
  EXPECT_EQ(next.bytes(), 0);
}

TEST(DeviceMemoryTest, TellsWhatNoTensorCanHave) {
  fake();
  const DeviceMemory memory = deviceMemory(c10::Device(kFake, 0));
  EXPECT_EQ(memory.total, kTotal);
  EXPECT_EQ(memory.free, kTotal - kOthers - kReserved);
  EXPECT_EQ(memory.reserved, kReserved);
  EXPECT_EQ(memory.outside(), kOthers);
}

TEST(DeviceMemoryTest, OnTheCpuSizesAreAsRequested) {
  const PeakGauge gauge(c10::kCPU);
  at::empty({100}, at::kByte);
  EXPECT_EQ(gauge.bytes(), 100);
}

}  // namespace
}  // namespace remat
