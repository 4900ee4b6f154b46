#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "passes/plan_archive.h"
#include "passes/simulator.h"

namespace remat {

/// Annealings of one budget side by side, each with a simulator, an archive and random numbers of
/// its own, on as many threads as the machine has.
///
/// Their number is fixed, and none sees the others' plans before a round ends: the result is the
/// same on every machine. They differ in what a byte above the budget costs and in the first
/// temperature; in a round's beginning half of them take up their own plan, half the best of all.
class ParallelAnnealing {
 public:
  static constexpr int kRounds = 8;

  /// Copies `simulator`. `each_time`: whether storages may be recomputed for every use.
  ParallelAnnealing(const Simulator& simulator, uint64_t seed, bool each_time);
  ~ParallelAnnealing();

  /// One of kRounds rounds, in order, from `best`, a plan within `budget` bytes; spends `work` of
  /// Simulator::work in all. What was found goes to `archive`.
  void anneal(int round, const std::vector<char>& best, int64_t budget, int64_t work,
              PlanArchive& archive);

  /// The cheapest plan of each annealing's last round, which may be above the budget.
  std::vector<std::vector<char>> results() const;

 private:
  struct Lane;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace remat
