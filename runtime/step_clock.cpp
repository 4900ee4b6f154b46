#include "runtime/step_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace remat::runtime {

int32_t StepClock::now() {
  if (device_.is_cpu()) {
    const auto instant = Host::now();
    const std::lock_guard<std::mutex> lock(mutex_);
    host_.push_back(instant);
    return static_cast<int32_t>(host_.size()) - 1;
  }
  // With timing: PyTorch's own default is without.
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(std::move(event));
  return static_cast<int32_t>(events_.size()) - 1;
}

double StepClock::seconds(int32_t begin, int32_t end) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (device_.is_cpu()) {
    return std::chrono::duration<double>(host_.at(end) - host_.at(begin)).count();
  }
  constexpr double kMillisecond = 1e-3;
  return kMillisecond * events_.at(begin).elapsedTime(events_.at(end));
}

}  // namespace remat::runtime
