#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "passes/simulator.h"

namespace remat {

/// The plans seen so far that no other seen plan beats in both peak and recompute time, ordered by
/// peak.
///
/// Because every answer comes from one such set, answers are monotone: less memory never costs less
/// time, and a lower budget never gets a higher peak.
class PlanArchive {
 public:
  struct Entry {
    Evaluation evaluation;
    std::vector<char> keep;  ///< by profile storage
  };

  /// Takes a completely evaluated plan; true if it was worth it.
  bool offer(const Evaluation& evaluation, const std::vector<char>& keep);

  /// The fastest plan with a peak of at most `budget` bytes; null where there is none.
  const Entry* best(int64_t budget) const;

  /// The plan with the lowest peak; null while the archive is empty.
  const Entry* lowest() const;

  /// Ascending peaks, descending seconds.
  const std::map<int64_t, Entry>& entries() const { return entries_; }

 private:
  std::map<int64_t, Entry> entries_;  ///< by peak
};

}  // namespace remat
