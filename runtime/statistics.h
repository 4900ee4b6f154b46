#pragma once

#include <chrono>
#include <cstdint>

namespace remat::runtime {

/// What regions did since the statistics were last taken, over all threads.
struct StepStatistics {
  double forward_seconds = 0;  ///< wall time of the regions' nodes in the forward
  double replay_seconds = 0;   ///< wall time of replayed nodes
  int64_t replayed_nodes = 0;
};

/// Off by default: reading the clock twice a node is not for production.
void enableStatistics(bool on);
/// Returns the counts and starts from zero.
StepStatistics takeStatistics();

/// Adds the time it lives, if statistics are on.
class StatisticsTimer {
 public:
  enum class Kind : uint8_t { kForward, kReplay };
  explicit StatisticsTimer(Kind kind);
  ~StatisticsTimer();
  StatisticsTimer(const StatisticsTimer&) = delete;
  StatisticsTimer& operator=(const StatisticsTimer&) = delete;

 private:
  Kind kind_;
  bool on_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace remat::runtime
