#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "llvm/ADT/ArrayRef.h"
#include "passes/evaluation.h"
#include "passes/simulation_model.h"

namespace remat {

/// The bytes of a step over its instants, of which few change from one plan to the next. Sums and
/// maxima are known by blocks of instants: a change costs a walk over its block, a question one
/// over the blocks.
class MemoryCurve {
 public:
  /// One replay: bytes above its start while it runs, and what it leaves.
  struct Step {
    int64_t peak = 0;
    int64_t delta = 0;
  };
  /// A point in time: after a step of an instant, or at the instant's end (kEnd).
  struct Point {
    int32_t instant = -1;
    int32_t step = kEnd;
    static constexpr int32_t kEnd = std::numeric_limits<int32_t>::max();
    bool operator<(const Point& other) const {
      return instant != other.instant ? instant < other.instant : step < other.step;
    }
    bool operator==(const Point& other) const {
      return instant == other.instant && step == other.step;
    }
  };

  /// The curve of a step in which no value's storage is ever freed.
  explicit MemoryCurve(const SimulationModel& model);

  /// `bytes` more (less, if negative) from `point` on.
  void add(Point point, int64_t bytes);

  /// The replays that an instant's unpacking makes.
  void setSteps(int32_t instant, llvm::ArrayRef<Step> steps);

  /// Peak, where it is first reached, and the excess above `soft_peak` (Evaluation).
  void measure(int64_t soft_peak, Evaluation& result);

  /// The most bytes of each instant.
  std::vector<int64_t> peaks() const;

 private:
  static constexpr int32_t kBlock = 32;

  struct Instant {
    int64_t peak = 0;   ///< above its start, before the steps
    int64_t first = 0;  ///< added before the steps
    int64_t last = 0;   ///< added after them
    std::vector<Step> steps;
  };
  struct Block {
    int64_t peak = 0;  ///< above its start
    int64_t delta = 0;
    bool stale = true;
  };

  /// Calls `at(bytes)` for each moment at which a peak can be, and returns the bytes at the end.
  template <typename Visit>
  static int64_t visit(const Instant& instant, int64_t live, Visit at) {
    at(live + instant.peak);
    live += instant.first;
    for (const Step& step : instant.steps) {
      at(live + step.peak);
      live += step.delta;
    }
    return live + instant.last;
  }
  void markStale(int32_t instant);
  void refresh(size_t block);

  std::vector<Instant> instants_;
  std::vector<Block> blocks_;
  std::vector<int32_t> stale_;
};

}  // namespace remat
