#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <optional>

namespace remat::runtime {

/// The time that what is queued between two points takes. On an accelerator these are events on the
/// device's current stream, and nothing waits for anything before seconds(); on the CPU the clock.
///
///     DeviceTimer timer(device);   // starts
///     ...                          // kernels are queued
///     timer.stop();
///     ...                          // later, after the step
///     timer.seconds();             // waits for the end, if it is not there yet
class DeviceTimer {
 public:
  explicit DeviceTimer(c10::Device device);

  /// On the stream on which the timer was started, whichever is current now.
  void stop();

  /// Call after stop(), outside of what is measured.
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Events {
    c10::Stream stream;
    c10::Event start;
    c10::Event end;
  };

  Clock::time_point start_;
  Clock::time_point end_;
  std::optional<Events> events_;
};

}  // namespace remat::runtime
