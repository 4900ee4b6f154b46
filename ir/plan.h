#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::ir {

/// What becomes of a storage that the backward asks for.
enum Decision : char {
  kRecompute = 0,          ///< made again once a backward, and then there until its last use
  kKeep = 1,               ///< stays in memory
  kRecomputeEachTime = 2,  ///< made again for every use: nothing of it is there in between
};

/// What to keep and what to recompute, decided per storage of one profile.
struct Plan {
  std::vector<char> keep;        ///< Decision by storage id of the profile; for kValue storages
  int64_t budget = 0;            ///< bytes of the step peak that were asked for
  int64_t predicted_peak = 0;    ///< bytes, by the simulator
  double recompute_seconds = 0;  ///< predicted, by the simulator
  double recompute_share = 0;    ///< recompute_seconds / Profile::forwardSeconds()
  /// Seconds, and share, of recomputation below which no plan within the budget can be; proved by
  /// LowerBound for plans by this profile. What the plan takes beyond is its gap.
  double lower_bound_seconds = 0;
  double lower_bound_share = 0;
  int64_t peak_bound = 0;  ///< bytes; no plan's peak is lower
  int32_t kept = 0;        ///< kValue storages that stay for the backward
  int32_t recomputed = 0;  ///< kValue storages that a backward makes again
  double planning_seconds = 0;

  /// Share of one forward that this plan recomputes beyond the bound: the least possible is at most
  /// so much less.
  double gap() const {
    return recompute_share > lower_bound_share ? recompute_share - lower_bound_share : 0;
  }
};

}  // namespace remat::ir
