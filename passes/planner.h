#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/plan.h"
#include "passes/planning_input.h"

namespace remat {

struct PlannerOptions {
  /// What may be spent on a budget, in units of Simulator::work: a small change of a plan costs
  /// 50 to 500. Steps with few decisions get less; once a budget is met, large graphs get up to six
  /// times as much to find a faster plan. Not time, so that plans are the same on every machine.
  int64_t work = 30000000;
  uint64_t seed = 1;
  /// Up to so many decisions all plans are simulated: the result is the best in the space "each
  /// value kept, or recomputed".
  int32_t exhaustive_decisions = 14;
  /// Whether storages may be recomputed for every use of a backward, where a budget can't be met
  /// otherwise.
  bool second_recomputation = true;
  int bound_rounds = 3000;  ///< of LowerBound, per budget; fewer for longer steps
};

/// Chooses what to keep and what to recompute. Only the simulator judges: a plan's `predicted_peak`
/// and `recompute_seconds` are what a step under it takes.
///
/// Minimum cuts, with one price per byte and with a price per instant, give plans; a prefix dynamic
/// program puts segments of known plans together (SegmentSeeds); annealings side by side
/// (ParallelAnnealing) improve what that finds, and the program runs again on their results; a
/// descent ends it. All plans ever seen are remembered,
/// so the answers of one planner are monotone: a lower budget never gets a higher peak, a higher
/// one never more time, as far as they come from one `sweep` or are asked for again.
///
/// Costs `PlannerOptions::work` a budget: about 3 s for a ResNet-50 (1,500 nodes) and 1.5 s for a
/// ViT-S (800 nodes) on two cores, twice that on one. Stale when the profile or the legality
/// changes.
class Planner {
 public:
  explicit Planner(const PlanningInput& input, const PlannerOptions& options = {});
  ~Planner();
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  /// The fastest plan found whose peak is at most `budget` bytes. If there is none, the plan with
  /// the lowest peak: `predicted_peak > budget` says that the budget can't be met and what can.
  ir::Plan plan(int64_t budget);

  /// One plan per budget, in the order given; plans found for one budget serve the others.
  std::vector<ir::Plan> sweep(const std::vector<int64_t>& budgets);

  /// The plan with the lowest reachable peak, and of these the fastest.
  ir::Plan minimum();

  /// What is known already, without a search: the fastest plan for `budget` bytes, ...
  ir::Plan known(int64_t budget);
  /// ... and the one with the lowest peak among those that recompute for `seconds` at most.
  ir::Plan lowestWithin(double seconds);

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

/// Sets the bounds of a plan that was found elsewhere, for its budget or, where that is 0, for its
/// own peak: proved for the input's profile, without a search.
void proveBounds(const PlanningInput& input, ir::Plan& plan);

/// One-shot forms.
ir::Plan plan(const PlanningInput& input, int64_t budget, const PlannerOptions& options = {});
std::vector<ir::Plan> sweep(const PlanningInput& input, const std::vector<int64_t>& budgets,
                            const PlannerOptions& options = {});

}  // namespace remat
