#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace remat {

/// What one training step costs under a plan.
struct Evaluation {
  int64_t peak = 0;              ///< bytes: the most that the step holds at once
  double recompute_seconds = 0;  ///< forward time of everything that is executed again
  int64_t excess = 0;        ///< bytes above EvaluationLimits::soft_peak, summed over the step's
                             ///< allocations: how far from a budget, where the peak is one of many
  int32_t peak_instant = 0;  ///< where the peak is first reached; see Timeline
  bool aborted = false;      ///< a limit was exceeded
};

/// A plan is not wanted (`aborted`) where its peak is above `peak`, or its recompute time plus
/// `seconds_per_byte` for each byte of the peak above `soft_peak` is more than `recompute_seconds`.
struct EvaluationLimits {
  int64_t peak = std::numeric_limits<int64_t>::max();
  double recompute_seconds = std::numeric_limits<double>::infinity();
  int64_t soft_peak = std::numeric_limits<int64_t>::max() / 2;
  double seconds_per_byte = 0;
};

/// One step under a plan, instant by instant. Instants 0 … forward_instants-1 are the executed
/// nodes that do anything with memory, the following ones the events of the backward; a replay
/// belongs to the instant whose unpacking asked for it. Storage arrays are indexed by the profile's
/// ids; -1 stands for "never".
struct Timeline {
  Evaluation evaluation;
  int32_t forward_instants = 0;
  std::vector<int64_t> peak_at;        ///< bytes, by instant
  std::vector<int32_t> profile_index;  ///< by instant: node of the forward, step of the backward
  std::vector<int32_t> first_alive;    ///< instant in which the forward allocates the storage
  std::vector<int32_t> last_alive;     ///< last instant in which that allocation is alive
  std::vector<int32_t> replay_first;   ///< instant in which the backward makes the storage again
  std::vector<int32_t> replay_last;    ///< last instant in which the recomputed bytes are alive
  std::vector<char> persists;          ///< alive after the forward: kept for the backward
};

}  // namespace remat
