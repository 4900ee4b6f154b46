#include "runtime/device_timer.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace remat::runtime {

DeviceTimer::DeviceTimer(c10::Device device) {
  if (device.is_cpu()) {
    start_ = Clock::now();
    return;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  // BACKEND_DEFAULT: events that take the time.
  events_.emplace(Events{
      guard.getStream(device.has_index() ? device : guard.getDevice()),
      c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT),
      c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT),
  });
  events_->start.record(events_->stream);
}

void DeviceTimer::stop() {
  if (events_) {
    events_->end.record(events_->stream);
  } else {
    end_ = Clock::now();
  }
}

double DeviceTimer::seconds() const {
  if (!events_) return std::chrono::duration<double>(end_ - start_).count();
  constexpr double kSecondsPerMillisecond = 1e-3;
  events_->end.synchronize();
  return events_->start.elapsedTime(events_->end) * kSecondsPerMillisecond;
}

}  // namespace remat::runtime
