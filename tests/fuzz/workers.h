#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace remat::fuzz {

/// What a trial came to, in a process of its own.
struct Report {
  uint64_t seed = 0;
  bool crashed = false;
  int verdict = 0;  ///< Verdict
  int64_t replayed = 0;
  std::string detail;  ///< one line
};

/// Runs `work` in a process of its own; its death is a report, too.
Report isolated(uint64_t seed, const std::function<Report(uint64_t)>& work);

/// Runs `work` on first, first + 1, … in `jobs` processes until `done`, which is told of every
/// report in the calling process, says so. Seeds are handed out in order, reports come in any.
/// A process that dies is replaced; of its batch, the seed it died on is a report with `crashed`.
void runWorkers(uint64_t first, int jobs, const std::function<Report(uint64_t)>& work,
                const std::function<bool(const Report&)>& done);

}  // namespace remat::fuzz
