#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace remat {

/// The most bytes that tensors on `device` hold at once above what they held when the gauge was
/// made. On the CPU requested sizes, counted by runtime/memory_statistics; elsewhere the allocated
/// bytes of the device's caching allocator, which rounds requests (CUDA's to 512 bytes): what
/// torch.cuda.max_memory_allocated() says. One gauge at a time: making one resets the peak.
class PeakGauge {
 public:
  explicit PeakGauge(c10::Device device);
  int64_t bytes() const;

 private:
  c10::Device device_;
  int64_t baseline_ = 0;
};

/// What the driver and this process's caching allocator say of a device's memory, bytes.
struct DeviceMemory {
  int64_t total = 0;
  int64_t free = 0;
  int64_t reserved = 0;    ///< held by the allocator, in use or not
  int64_t workspaces = 0;  ///< of these what libraries took for good with their first calls
  /// Held by no tensor of this process: its own context, its libraries, and other programs.
  int64_t outside() const { return total - free - reserved + workspaces; }
};

/// Of `device`, not the CPU. On CUDA a convolution and a linear layer are trained first, so that
/// contexts, handles and workspaces of cuDNN and cuBLAS, also those of autograd's thread, are
/// there. Throws c10::Error where it can't tell.
DeviceMemory deviceMemory(c10::Device device);

/// Waits for everything that was queued on `device`; nothing on the CPU.
void synchronize(c10::Device device);

}  // namespace remat
