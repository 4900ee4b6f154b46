#pragma once

#include <cstdint>
#include <vector>

#include "passes/min_cut.h"
#include "passes/simulator.h"

namespace remat {

/// What no plan can beat: a proof, not an estimate.
///
/// Under any plan, an instant of the step holds at least what it holds when no candidate stays for
/// the backward (*base*), and the bytes of every storage that the plan keeps and needs, from the
/// node after which the executor drops it to the last release of its slots; a kept storage without
/// slots is held as a boundary, until the earliest end that any of its recomputable consumers can
/// have. While a node's backward computes with what it unpacked, that is there whether it was kept
/// or recomputed: it belongs to the base then, and keeping it costs nothing (*use*). A plan takes
/// at least the time of every node that its dropped slots lead to, once. With a
/// multiplier m(i) >= 0 per instant, weak duality (Geoffrion, Lagrangean Relaxation for Integer
/// Programming, 1974) gives for every plan within the budget B
///
///     seconds >= min over plans (seconds + sum over kept s of bytes(s) · sum of m over s's
///     instants)
///                + sum over i of m(i) · (base(i) − B)
///
/// and the minimum is a minimum cut (MinCut). Polyak's subgradient steps raise the bound; any
/// multipliers give a valid one. Memory that replays take is not counted, so the bound is loose
/// where budgets are deep. Second recomputations only add time: the bound holds for them too.
///
/// Cost: `rounds` minimum cuts. Stale when the simulator's profile changes.
class LowerBound {
 public:
  explicit LowerBound(Simulator& simulator);

  /// Bytes below which no plan's peak can be.
  int64_t peak() const { return floor_; }

  /// The base: by instant (Timeline), bytes that every plan holds at its most.
  const std::vector<int64_t>& base() const { return base_; }

  /// Seconds of recomputation that every plan with a peak of at most `budget` bytes takes; infinite
  /// where none can have it. `known` is what a known plan takes: nothing above it will be found,
  /// and the search ends when it is reached.
  double seconds(int64_t budget, double known, int rounds);

 private:
  /// Instants, first and last.
  struct Span {
    int32_t begin;
    int32_t end;
  };

  void findUses();
  void findCasts(const Timeline& timeline);
  void findEnds();
  void endUnsaved();
  template <typename Visit>
  void visitHeld(int32_t storage, int32_t end, Visit at) const;
  double price(const std::vector<char>& keep, const CutPrices& prices);
  double round(int64_t budget);
  void step(int64_t budget, double target);

  const SimulationModel& model_;
  MinCut cut_;
  std::vector<int64_t> base_;
  int64_t floor_ = 0;
  std::vector<std::vector<int32_t>> casts_;  ///< by model storage: what slots hold in its place
  std::vector<std::vector<Span>> uses_;      ///< by model storage, in order, apart from each other
  std::vector<int32_t> begins_;      ///< by model storage: first instant that keeping it adds to
  std::vector<int32_t> ends_;        ///< last such instant; before the first: none
  std::vector<double> multiplier_;   ///< by instant, seconds per byte
  std::vector<double> price_until_;  ///< sum of the multipliers of earlier instants
  CutPrices prices_;
  // Of the round's cut.
  std::vector<char> pays_casts_;  ///< by storage
  std::vector<char> pays_;        ///< by storage
  std::vector<char> available_;   ///< by value
  std::vector<char> replayed_;    ///< by node
  std::vector<int32_t> stack_;
  std::vector<double> change_;  ///< by instant
};

}  // namespace remat
