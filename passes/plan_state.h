#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "passes/evaluation.h"
#include "passes/group_replay.h"
#include "passes/memory_curve.h"
#include "passes/simulation_index.h"
#include "passes/simulation_model.h"

namespace remat {

/// A step under a plan, and what changes of it when decisions change.
///
/// Recomputed values fall into groups (GroupReplay); a change of decisions makes only those groups
/// anew that it touches, and only those storages' ends. A plan that differs in a few decisions
/// costs as much as the groups around them, one that differs in all as much as the step.
class PlanState {
 public:
  /// The model must outlive the state. Starts with everything kept.
  explicit PlanState(const SimulationModel& model);

  /// Changes to the plan `keep`, an ir::Decision for each of the profile's storages.
  void change(const std::vector<char>& keep);

  /// What a step under the present plan takes; `excess` above `soft_peak`.
  Evaluation measure(int64_t soft_peak);

  /// The present plan's step, instant by instant.
  void trace(Timeline& timeline);

  /// Nodes, values and storages looked at so far: what `change` costs, in units that are the same
  /// on every machine.
  int64_t work() const { return work_; }

 private:
  using Point = MemoryCurve::Point;

  /// Who still needs a value or a node once the forward is done, and until when.
  struct Need {
    int32_t until = -1;      ///< instant in which the last one lets go
    int32_t horizon = -1;    ///< node after which the forward drops an unneeded boundary
    int32_t replayable = 0;  ///< value: a replay may start from it; node: some output is recomputed
    bool operator==(const Need& other) const {
      return until == other.until && horizon == other.horizon && replayable == other.replayable;
    }
  };
  struct Group {
    std::vector<int32_t> values;
    std::vector<int32_t> nodes;
    GroupReplay replay;
  };
  struct Hold {
    int32_t group;
    Point until;
  };
  /// A list of ids without duplicates.
  class Marked {
   public:
    explicit Marked(size_t size) : is_in_(size) {}
    bool add(int32_t id) {
      if (is_in_[id]) return false;
      is_in_[id] = 1;
      ids.push_back(id);
      return true;
    }
    void clear() {
      for (int32_t id : ids) is_in_[id] = 0;
      ids.clear();
    }
    std::vector<int32_t> ids;

   private:
    std::vector<char> is_in_;
  };

  void decide(int32_t storage, char decision);
  void touchNeighbours(int32_t value);
  void dissolve(int32_t group);
  void regroup();
  void gather(int32_t value, Group& group);
  void updateNeeds();
  void updateNode(int32_t node);
  void updateValue(int32_t value);
  void replayGroups();
  void moveEnd(int32_t storage, Point end);
  std::pair<Point, bool> endOf(int32_t storage) const;
  Point never() const { return {index_.end, Point::kEnd}; }
  void update();

  const SimulationModel& model_;
  const SimulationIndex index_;
  ReplayState state_;
  GroupReplayer replayer_;
  MemoryCurve curve_;
  std::vector<char> decisions_;  ///< by profile storage, as far as `change` was told
  std::vector<char> undecided_;  ///< by value: recomputable where no storage of it is kept
  std::vector<Need> value_needs_;
  std::vector<Need> node_needs_;
  std::vector<int32_t> group_of_;  ///< by value; -1: not recomputable
  std::vector<Group> groups_;
  std::vector<int32_t> free_groups_;
  std::vector<int32_t> new_groups_;
  std::vector<Point> ends_;               ///< by storage: of the forward's allocation
  std::vector<std::vector<Hold>> holds_;  ///< by storage: of groups
  int64_t ticks_ = 0;
  int64_t work_ = 0;

  // What the change under way touches:
  Marked values_;  ///< may have become recomputable, or no longer
  Marked loose_;   ///< values without a group for now
  Marked nodes_;
  Marked boundaries_;  ///< values whose needs may change
  Marked storages_;
};

}  // namespace remat
