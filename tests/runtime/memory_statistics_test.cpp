#include "runtime/memory_statistics.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace remat::runtime {
namespace {

class MemoryStatisticsTest : public ::testing::Test {
 protected:
  void SetUp() override { installMemoryStatistics(); }
};

TEST(MemoryStatistics, MemoryFromBeforeTheInstallationIsFreedAndNotCounted) {
  // First in the file: later tests have installed the counter.
  at::Tensor before = at::ones({1000});
  installMemoryStatistics();
  const int64_t live = liveBytes();
  before = at::Tensor();
  EXPECT_EQ(liveBytes(), live);
}

TEST_F(MemoryStatisticsTest, CountsRequestedBytes) {
  const int64_t live = liveBytes();
  {
    const at::Tensor three = at::empty({3}, at::kFloat);
    EXPECT_EQ(liveBytes(), live + 12);
    const at::Tensor view = three.view({1, 3});
    EXPECT_EQ(liveBytes(), live + 12);
  }
  EXPECT_EQ(liveBytes(), live);
}

TEST_F(MemoryStatisticsTest, PeakIsTheMostSinceTheReset) {
  at::Tensor kept = at::empty({100}, at::kByte);
  resetPeak();
  const int64_t live = liveBytes();
  EXPECT_EQ(peakBytes(), live);
  at::empty({5000}, at::kByte);
  EXPECT_EQ(peakBytes(), live + 5000);
  EXPECT_EQ(liveBytes(), live);
  resetPeak();
  EXPECT_EQ(peakBytes(), live);
}

TEST_F(MemoryStatisticsTest, ResizedAndEmptyStorages) {
  const int64_t live = liveBytes();
  {
    at::Tensor tensor = at::empty({0}, at::kByte);
    EXPECT_EQ(liveBytes(), live);
    tensor.resize_({70});
    EXPECT_EQ(liveBytes(), live + 70);
  }
  EXPECT_EQ(liveBytes(), live);
}

TEST_F(MemoryStatisticsTest, KnowsTheSizeOfAnAllocation) {
  const at::Tensor tensor = at::empty({10}, at::kFloat);
  const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
  EXPECT_EQ(allocatedBytes(data), 40);
  EXPECT_EQ(allocatedBytes(data + 4), -1);
  EXPECT_EQ(allocatedBytes(nullptr), -1);
}

TEST_F(MemoryStatisticsTest, RawAllocations) {
  const int64_t live = liveBytes();
  c10::Allocator* const allocator = c10::GetAllocator(c10::kCPU);
  void* const data = allocator->raw_allocate(33);
  EXPECT_EQ(liveBytes(), live + 33);
  allocator->raw_deallocate(data);
  EXPECT_EQ(liveBytes(), live);
}

TEST_F(MemoryStatisticsTest, ThreadsAreCountedTogether) {
  const int64_t live = liveBytes();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int k = 1; k < 500; ++k) at::empty({k}, at::kByte);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(liveBytes(), live);
}

class Recorder final : public AllocationListener {
 public:
  void allocated(const void* data, size_t bytes) override { events.emplace_back(data, bytes); }
  void freed(const void* data, size_t bytes) override {
    events.emplace_back(data, -static_cast<int64_t>(bytes));
  }
  std::vector<std::pair<const void*, int64_t>> events;
};

TEST_F(MemoryStatisticsTest, ListenerSeesEveryEventInOrder) {
  Recorder recorder;
  const void* address = nullptr;
  {
    at::Tensor unseen = at::empty({1}, at::kByte);
    setAllocationListener(&recorder);
    const at::Tensor tensor = at::empty({40}, at::kByte);
    address = tensor.const_data_ptr();
  }
  setAllocationListener(nullptr);
  at::empty({2}, at::kByte);
  ASSERT_EQ(recorder.events.size(), 3U);  // and the storage from before, freed while it listened
  EXPECT_EQ(recorder.events[0], std::make_pair(address, int64_t{40}));
  EXPECT_EQ(recorder.events[1], std::make_pair(address, int64_t{-40}));
  EXPECT_EQ(recorder.events[2].second, -1);
}

}  // namespace
}  // namespace remat::runtime
