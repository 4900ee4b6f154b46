#include "passes/device_memory.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/device_statistics.h"
#include "runtime/memory_statistics.h"

namespace remat {

PeakGauge::PeakGauge(c10::Device device) : device_(device) {
  if (device.is_cpu()) {
    runtime::installMemoryStatistics();
    runtime::resetPeak();
    baseline_ = runtime::liveBytes();
    return;
  }
  synchronize(device);
  runtime::resetDevicePeaks(device);
  baseline_ = runtime::deviceStatistics(device).allocated;
}

int64_t PeakGauge::bytes() const {
  if (device_.is_cpu()) return runtime::peakBytes() - baseline_;
  return runtime::deviceStatistics(device_).allocated_peak - baseline_;
}

DeviceMemory deviceMemory(c10::Device device) {
  const runtime::DeviceCapacity capacity = runtime::deviceCapacity(device);
  return {capacity.total, capacity.free, runtime::deviceStatistics(device).reserved};
}

void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type())
      .synchronizeDevice(device.has_index() ? device.index() : 0);
}

}  // namespace remat
