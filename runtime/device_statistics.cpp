#include "runtime/device_statistics.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace remat::runtime {
namespace {

using c10::CachingAllocator::StatArray;

/// Small and large blocks together.
const c10::CachingAllocator::Stat& sum(const StatArray& stats) {
  return stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

c10::DeviceIndex indexOf(c10::Device device) { return device.has_index() ? device.index() : 0; }

/// LibTorch asserts where there is none; a caller can do something about a wrong device.
c10::DeviceAllocator& allocatorOf(c10::Device device) {
  auto* const allocator =
      device.is_cpu() ? nullptr
                      : dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  TORCH_CHECK(allocator != nullptr, "remat: ", device, " has no caching allocator to ask");
  return *allocator;
}

}  // namespace

double DeviceStatistics::fragmentation() const {
  return reserved == 0 ? 0 : static_cast<double>(inactive_split) / static_cast<double>(reserved);
}

DeviceStatistics deviceStatistics(c10::Device device) {
  c10::DeviceAllocator& allocator = allocatorOf(device);
  DeviceStatistics result;
  // Before the first allocation the allocator has no device to speak of, and CUDA's throws.
  if (!allocator.initialized()) return result;
  const auto stats = allocator.getDeviceStats(indexOf(device));
  result.allocated = sum(stats.allocated_bytes).current;
  result.allocated_peak = sum(stats.allocated_bytes).peak;
  result.requested = sum(stats.requested_bytes).current;
  result.requested_peak = sum(stats.requested_bytes).peak;
  result.reserved = sum(stats.reserved_bytes).current;
  result.reserved_peak = sum(stats.reserved_bytes).peak;
  result.inactive_split = sum(stats.inactive_split_bytes).current;
  result.retries = stats.num_alloc_retries;
  result.out_of_memory = stats.num_ooms;
  return result;
}

void resetDevicePeaks(c10::Device device) {
  c10::DeviceAllocator& allocator = allocatorOf(device);
  if (allocator.initialized()) allocator.resetPeakStats(indexOf(device));
}

DeviceCapacity deviceCapacity(c10::Device device) {
  const auto [free, total] = allocatorOf(device).getMemoryInfo(indexOf(device));
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

}  // namespace remat::runtime
