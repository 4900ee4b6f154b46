#pragma once

#include <cstddef>
#include <cstdint>

namespace remat::runtime {

/// Told of every CPU storage allocation and free of the process while it is installed, in order,
/// one at a time (the caller holds a lock: allocate nothing through the tracked allocator).
class AllocationListener {
 public:
  virtual ~AllocationListener() = default;
  virtual void allocated(const void* data, size_t bytes) = 0;
  virtual void freed(const void* data, size_t bytes) = 0;
};

/// Puts a counting allocator in front of LibTorch's CPU allocator, for the rest of the process.
/// Idempotent. Memory that was allocated before is freed correctly but not counted.
void installMemoryStatistics();

/// Bytes (as requested, without the allocator's rounding) of tensors alive now, allocated since the
/// installation, and the most since resetPeak().
int64_t liveBytes();
int64_t peakBytes();
void resetPeak();

/// The size of the live allocation that starts at `data`; -1 if none made since the installation
/// does.
int64_t allocatedBytes(const void* data);

/// At most one listener at a time; nullptr removes it.
void setAllocationListener(AllocationListener* listener);

}  // namespace remat::runtime
