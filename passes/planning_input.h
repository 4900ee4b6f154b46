#pragma once

#include <limits>
#include <vector>

#include "ir/profile.h"

namespace remat {

/// What simulator and planner decide on: a profile and, for each of its nodes, whether it may be
/// replayed.
///
/// Derived rules, the same as the runtime's:
/// - a storage's *root* is the first value (lowest producer) that holds it. Keeping a storage marks
/// its root.
/// - a value that is no tensor, or has no producer, is at hand in a replay at no cost.
/// - a storage can be recomputed only if it is a kValue storage of at least `minimum_bytes` and
/// every node
///   that makes or views it is replayable; all other kValue storages are kept.
struct PlanningInput {
  ir::Profile profile;
  std::vector<char> replayable;   ///< by node of the profile
  int64_t minimum_bytes = 65536;  ///< smaller storages are not worth recomputing
  /// By storage of the profile what the user wants of it (ir::Decision), or kFree; empty: all are
  /// free. A storage forced to be kept is no decision. One forced to be recomputed stays one in
  /// name: whatever a plan says of it, it is recomputed.
  std::vector<char> forced;
  static constexpr char kFree = -1;
  /// Values from this one on are not of the region: they stand for what nodes saved inside of
  /// themselves (exposeInternals).
  int32_t first_internal = std::numeric_limits<int32_t>::max();
};

}  // namespace remat
