#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace remat::runtime {

class DeviceTimer;

/// What regions did since the statistics were last taken, over all threads.
struct StepStatistics {
  double forward_seconds = 0;  ///< that the regions' nodes took in the forward
  double replay_seconds = 0;   ///< that replayed nodes took
  int64_t replayed_nodes = 0;
};

/// Off by default: reading the clock twice a node, or recording two events, is not for production.
void enableStatistics(bool on);
/// Whether they are on.
bool statisticsEnabled();
/// Returns the counts and starts from zero. Waits for the accelerators that regions ran on.
StepStatistics takeStatistics();

/// Adds the time that it lives, on an accelerator the time that its stream takes for what is queued
/// meanwhile, if statistics are on.
class StatisticsTimer {
 public:
  enum class Kind : uint8_t { kForward, kReplay };
  StatisticsTimer(Kind kind, c10::Device device);
  ~StatisticsTimer();
  StatisticsTimer(const StatisticsTimer&) = delete;
  StatisticsTimer& operator=(const StatisticsTimer&) = delete;

 private:
  Kind kind_;
  c10::Device device_;
  std::unique_ptr<DeviceTimer> timer_;  ///< null where statistics are off
};

}  // namespace remat::runtime
