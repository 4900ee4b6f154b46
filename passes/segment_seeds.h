#pragma once

#include <cstdint>
#include <vector>

#include "passes/simulator.h"

namespace remat {

/// Plans for deep budgets: the step is cut at a few positions, what crosses a position is kept, and
/// each segment between two positions follows one of several given plans or is dropped as a whole.
/// A prefix dynamic program chooses positions and options; its state is the bytes kept so far.
///
/// A segment's own peak is estimated: a plan's from its timeline (what it takes there beyond its
/// kept bytes), a dropped segment's as all its saved bytes at once plus the gradients at work.
/// Estimates only steer; callers judge the result by the simulator and ask again with a corrected
/// budget.
class SegmentSeeds {
 public:
  /// `guides`: the plans that segments may follow; everything kept and everything dropped come by
  /// themselves. Cost: one trace per guide.
  SegmentSeeds(Simulator& simulator, const std::vector<std::vector<char>>& guides);

  /// The fastest plan by profile storage; empty where the estimates leave none. Cost: about
  /// positions² · (guides + labels/10 · guides that differ) steps, 10 ms.
  std::vector<char> solve(int64_t budget) const;

 private:
  /// One plan, seen per slice: the nodes between two neighbouring positions.
  struct Guide {
    std::vector<char> keep;             ///< by profile storage
    std::vector<char> persists;         ///< by profile storage
    bool whole = false;                 ///< replayed as a whole: all saved bytes at once
    std::vector<int64_t> kept_until;    ///< by position: bytes it keeps from the nodes before
    std::vector<double> seconds_until;  ///< by position: time it recomputes of the nodes before
    std::vector<int64_t> peak;          ///< by slice: during the backward of the slice's nodes
  };

  /// What is alive across a position, latest producer first.
  struct Crossing {
    int32_t storage;  ///< model storage
    int32_t slice;    ///< of its producer
  };

  struct Label {
    int64_t kept = 0;
    double seconds = 0;
    int32_t position = 0;  ///< where the segment before it began
    int32_t label = -1;    ///< there
    int32_t guide = -1;
  };

  /// A segment between two positions that follows one guide.
  struct Option {
    int64_t taken = 0;  ///< at its own peak, beyond what is kept before it
    int64_t added = 0;  ///< to the kept bytes
    double seconds = 0;
    int32_t guide = 0;
  };

  struct Reach;

  void choosePositions();
  void addGuide(std::vector<char> keep, bool whole);
  void findOptions(int32_t begin, int32_t end, int64_t working, std::vector<Reach>& reaches,
                   std::vector<Option>& options) const;
  void extend(std::vector<std::vector<Label>>& labels, int32_t end, int64_t budget) const;

  Simulator& simulator_;
  const SimulationModel& model_;
  std::vector<int32_t>
      positions_;  ///< nodes before which the step may be cut, first 0, last nodes.size()
  std::vector<int32_t> slice_of_;                ///< by node
  std::vector<std::vector<Crossing>> crossing_;  ///< by position
  std::vector<Guide> guides_;
  std::vector<int64_t> saved_until_;  ///< by position: bytes that keeping everything keeps
  std::vector<int64_t> working_;      ///< by slice: what its backward takes beyond saved bytes
};

}  // namespace remat
