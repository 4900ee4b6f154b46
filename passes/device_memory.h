#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace remat {

/// The most bytes that tensors on `device` hold at once above what they held when the gauge was
/// made. On the CPU requested sizes, counted by runtime/memory_statistics; elsewhere the requested
/// bytes of the device's caching allocator. One gauge at a time: making one resets the peak.
class PeakGauge {
 public:
  explicit PeakGauge(c10::Device device);
  int64_t bytes() const;

 private:
  c10::Device device_;
  int64_t baseline_ = 0;
};

/// Waits for everything that was queued on `device`; nothing on the CPU.
void synchronize(c10::Device device);

}  // namespace remat
