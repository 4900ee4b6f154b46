#include "passes/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/memory_statistics.h"

namespace remat {
namespace {

c10::DeviceIndex indexOf(c10::Device device) { return device.has_index() ? device.index() : 0; }

c10::CachingAllocator::Stat requestedBytes(c10::Device device) {
  constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::getDeviceAllocator(device.type())
      ->getDeviceStats(indexOf(device))
      .requested_bytes[kAggregate];
}

}  // namespace

PeakGauge::PeakGauge(c10::Device device) : device_(device) {
  if (device.is_cpu()) {
    runtime::installMemoryStatistics();
    runtime::resetPeak();
    baseline_ = runtime::liveBytes();
    return;
  }
  synchronize(device);
  c10::getDeviceAllocator(device.type())->resetPeakStats(indexOf(device));
  baseline_ = requestedBytes(device).current;
}

int64_t PeakGauge::bytes() const {
  if (device_.is_cpu()) return runtime::peakBytes() - baseline_;
  return requestedBytes(device_).peak - baseline_;
}

void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(indexOf(device));
}

}  // namespace remat
