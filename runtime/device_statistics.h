#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace remat::runtime {

/// What the caching allocator of a device holds, in bytes. The names are those of
/// `torch.cuda.memory_summary()`.
struct DeviceStatistics {
  int64_t allocated = 0;  ///< of blocks in use: requests, each rounded up (CUDA: to 512)
  int64_t allocated_peak = 0;
  int64_t requested = 0;  ///< the same without the rounding
  int64_t requested_peak = 0;
  int64_t reserved = 0;  ///< taken from the driver: blocks in use and what is cached for later
  int64_t reserved_peak = 0;
  int64_t inactive_split = 0;  ///< cached, and can't be given back: the rest of it is in use
  int64_t retries = 0;         ///< requests that had the cache emptied first
  int64_t out_of_memory = 0;   ///< requests that failed all the same

  /// Of what is reserved, the share that no tensor uses and no request for a large block can have:
  /// `inactive_split / reserved`. 0 where nothing is reserved.
  double fragmentation() const;
};

/// The statistics of `device`, which has a caching allocator (no CPU). Waits for nothing. Throws
/// c10::Error where the device type has none.
DeviceStatistics deviceStatistics(c10::Device device);

/// Sets the peaks to what is held now.
void resetDevicePeaks(c10::Device device);

/// What the device itself has, in bytes, other processes and the contexts included.
struct DeviceCapacity {
  int64_t free = 0;
  int64_t total = 0;
};

/// Asks the driver: creates the device's context where there is none yet (on CUDA some 500 MB).
/// Throws c10::Error where the device can't tell.
DeviceCapacity deviceCapacity(c10::Device device);

}  // namespace remat::runtime
