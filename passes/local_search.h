#pragma once

#include <cstdint>
#include <vector>

#include "ir/plan.h"
#include "passes/plan_archive.h"
#include "passes/simulator.h"

namespace remat {

/// A small deterministic generator: the same plans on every platform, which std distributions don't
/// promise.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// Uniform in [0, bound).
  int32_t below(int32_t bound) {
    return static_cast<int32_t>(next() % static_cast<uint64_t>(bound));
  }
  /// Uniform in (0, 1].
  double unit() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }

 private:
  uint64_t state_;
};

/// Improves plans by small changes, each judged by the simulator. What it finds goes to the
/// archive.
///
/// The cost of a plan is its recompute time plus a penalty per byte above the budget. Changes: flip
/// one decision; exchange a kept with a dropped one nearby; drop or keep a run of neighbours (in
/// the order of production). Deterministic for a seed; work is counted by the simulator,
/// never in time.
class LocalSearch {
 public:
  /// `simulator` and `archive` must outlive the search.
  LocalSearch(Simulator& simulator, PlanArchive& archive, uint64_t seed);

  /// What a byte of the peak above the budget costs, in units of (time to recompute everything) /
  /// (peak with everything kept); and, as a share of that, what a byte above it costs at every
  /// other allocation. Where equal blocks share the peak, lowering one of them is progress only by
  /// the latter.
  void setPenalty(double weight, double excess_weight);

  /// Whether changes may have storages recomputed for every use: for deep budgets.
  void allowEachTime(bool allow) { each_time_ = allow; }

  /// A plan of random decisions.
  std::vector<char> anywhere();

  /// Simulated annealing from `keep`, cooling over so much of Simulator::work. `hot` is the first
  /// temperature, as a share of the time that recomputing everything takes. Returns the plan of
  /// the lowest cost, which may be above the budget.
  std::vector<char> anneal(std::vector<char> keep, int64_t budget, int64_t work, double hot);

  /// Descends from `keep` by the best of all flips and all exchanges until none helps or so much of
  /// Simulator::work is spent.
  void polish(std::vector<char> keep, int64_t budget, int64_t work);

 private:
  double cost(const Evaluation& evaluation, int64_t budget) const;
  /// One decision of the current plan, and what it was before the move under way.
  struct Change {
    int32_t decision;
    char before;
  };

  void propose();
  bool isKept(int32_t decision) const { return keep_[decisions_[decision]] == ir::kKeep; }
  void set(int32_t decision, char value);
  void flip(int32_t decision);
  void undo();
  Evaluation evaluate(double cost_limit, int64_t budget);
  bool improveBy(int64_t budget, int64_t end, double& current, bool pairs);

  Simulator& simulator_;
  PlanArchive& archive_;
  SplitMix random_;
  std::vector<int32_t> decisions_;  ///< profile storages, in order of production
  std::vector<int32_t> reached_;    ///< decisions that some saved slot can come to depend on
  std::vector<char> keep_;          ///< the current plan, by profile storage
  std::vector<Change> changed_;     ///< by the move under way
  bool each_time_ = false;
  double reachable_seconds_ = 0;  ///< when everything is dropped
  double penalty_unit_ = 0;       ///< seconds per byte: recomputing everything / peak
  double excess_weight_ = 0;
  double penalty_per_byte_ = 0;  ///< seconds
};

}  // namespace remat
