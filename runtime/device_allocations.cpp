#include "runtime/device_allocations.h"

#include <c10/core/Allocator.h>

#include <mutex>

namespace remat::runtime {

class DeviceAllocationScope::Reporter final : public c10::MemoryReportingInfoBase {
 public:
  Reporter(c10::Device device, AllocationListener& listener)
      : device_(device), listener_(&listener) {}

  void reportMemoryUsage(void* data, int64_t bytes, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device device) override {
    if (data == nullptr || bytes == 0) return;
    const bool ours = device.type() == device_.type() &&
                      (!device_.has_index() || device.index() == device_.index());
    const auto counted = static_cast<size_t>(!ours ? 0 : bytes < 0 ? -bytes : bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (listener_ == nullptr) return;
    if (bytes > 0) {
      listener_->allocated(data, counted);
    } else {
      listener_->freed(data, counted);
    }
  }

  bool memoryProfilingEnabled() const override { return true; }

  /// A thread that autograd runs may hold the reporter for longer than the scope lives.
  void stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    listener_ = nullptr;
  }

 private:
  c10::Device device_;
  std::mutex mutex_;  ///< the listener is told of one thing at a time
  AllocationListener* listener_;
};

DeviceAllocationScope::DeviceAllocationScope(c10::Device device, AllocationListener& listener)
    : reporter_(std::make_shared<Reporter>(device, listener)),
      guard_(c10::DebugInfoKind::PROFILER_STATE, reporter_) {}

DeviceAllocationScope::~DeviceAllocationScope() { reporter_->stop(); }

}  // namespace remat::runtime
