#pragma once

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

#include "runtime/memory_statistics.h"

namespace remat::runtime {

/// Tells a listener of everything that tensors on `device`, not the CPU, are given and give back
/// while the scope lives, with the bytes that the device's caching allocator counts as allocated: a
/// request rounded, with what was left unsplit of its block. Tensors elsewhere, on the CPU as well,
/// are reported with 0 bytes: they are storages, and take none of the device's memory.
///
/// What this thread and those that autograd runs for its backwards do is seen; other threads are
/// not. It takes the place of a profiler (c10's PROFILER_STATE) meanwhile.
class DeviceAllocationScope {
 public:
  DeviceAllocationScope(c10::Device device, AllocationListener& listener);
  ~DeviceAllocationScope();
  DeviceAllocationScope(const DeviceAllocationScope&) = delete;
  DeviceAllocationScope& operator=(const DeviceAllocationScope&) = delete;

 private:
  class Reporter;

  std::shared_ptr<Reporter> reporter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace remat::runtime
