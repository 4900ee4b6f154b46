#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>

namespace remat::runtime {

/// Instants of one training step: the host's on the CPU; elsewhere events on the stream that is the
/// calling thread's, so that taking one waits for nothing.
///
///     StepClock clock(device);
///     const int32_t begin = clock.now();
///     ... operators ...
///     const int32_t end = clock.now();
///     ... the device is synchronised, once ...
///     clock.seconds(begin, end);
class StepClock {
 public:
  explicit StepClock(c10::Device device) : device_(device) {}

  /// The present instant's number, from 0 up. May be called from several threads.
  int32_t now();

  /// Seconds between two instants of one stream. On a device everything up to `end` must be over:
  /// an event that is not raises an error.
  double seconds(int32_t begin, int32_t end) const;

 private:
  using Host = std::chrono::steady_clock;

  c10::Device device_;
  mutable std::mutex mutex_;
  std::deque<Host::time_point> host_;
  std::deque<c10::Event> events_;
};

}  // namespace remat::runtime
