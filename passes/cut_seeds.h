#pragma once

#include <cstdint>
#include <vector>

#include "passes/min_cut.h"
#include "passes/plan_archive.h"
#include "passes/simulator.h"

namespace remat {

/// Plans from minimum cuts, judged by the simulator and offered to the archive.
///
/// A cut knows linear prices only. One price per byte gives the hull of (kept bytes, time). But a
/// kept storage costs memory only while it is alive, and only where memory is short: `forBudget`
/// therefore puts prices on instants of the step, makes a storage pay for those in which keeping it
/// (or replaying it) holds its bytes, simulates the cut's plan, raises the prices where that is
/// above the budget, and repeats.
class CutSeeds {
 public:
  CutSeeds(Simulator& simulator, PlanArchive& archive);

  /// Plans along the hull, from everything kept to everything recomputed.
  void sweepPrices(int steps);

  /// `rounds` cuts and traces for one budget.
  void forBudget(int64_t budget, int rounds);

 private:
  std::vector<char> toProfile(const std::vector<char>& keep) const;
  void estimateLifetimes();
  CutPrices pricesAt(const std::vector<double>& price_until) const;

  Simulator& simulator_;
  PlanArchive& archive_;
  const SimulationModel& model_;
  MinCut cut_;
  // By model storage, as instants: when the executor drops it; the last instant in which it is
  // alive if kept; the instants between which it is alive if recomputed.
  std::vector<int32_t> dropped_;
  std::vector<int32_t> kept_until_;
  std::vector<int32_t> replay_first_;
  std::vector<int32_t> replay_last_;
};

}  // namespace remat
