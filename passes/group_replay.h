#pragma once

#include <cstdint>
#include <vector>

#include "llvm/ADT/ArrayRef.h"
#include "passes/evaluation.h"
#include "passes/memory_curve.h"
#include "passes/simulation_index.h"
#include "passes/simulation_model.h"

namespace remat {

/// What is decided of each part of a SimulationModel, and what follows for replays.
struct ReplayState {
  explicit ReplayState(const SimulationModel& model);

  // By storage:
  std::vector<char> kept;
  std::vector<char> replayed;   ///< comes from a replay wherever a replay shows it
  std::vector<char> each_time;  ///< recomputed for every use
  // By value:
  std::vector<char> recomputable;
  std::vector<char> cacheable;  ///< stays from one use to the next
  std::vector<int32_t> needs;   ///< handles and needed consumers after the forward

  bool isHandle(const SimulationModel::Slot& slot) const {
    return slot.value >= 0 && !kept[slot.storage];
  }
};

/// The replays of one group: recomputed values that are connected through the nodes which make and
/// read them. What other groups do does not change them; only the bytes add up.
struct GroupReplay {
  struct Unpack {
    int32_t instant;
    int32_t first_step;  ///< in `steps`, until the next unpack's
  };
  struct Change {
    MemoryCurve::Point point;
    int64_t bytes;
  };
  struct Hold {
    int32_t storage;           ///< the forward's allocation of it
    MemoryCurve::Point until;  ///< its last holder in this group lets go
  };
  int64_t ticks = 0;  ///< SimulationModel::kTicksPerSecond
  std::vector<Unpack> unpacks;
  std::vector<MemoryCurve::Step> steps;
  std::vector<Change> changes;  ///< outside of the steps
  std::vector<Hold> holds;      ///< of storages that were not recomputed

  llvm::ArrayRef<MemoryCurve::Step> stepsOf(size_t unpack) const;
  void clear();
};

/// Executes groups' replays as the runtime does, tensor by tensor. Bytes are counted by *instance*:
/// a replay allocates a storage once more while an earlier instance may still be in use.
class GroupReplayer {
 public:
  GroupReplayer(const SimulationModel& model, const SimulationIndex& index,
                const ReplayState& state);

  /// `values`: the group's recomputed values; `nodes`: their producers. With a timeline, its
  /// replay_first and replay_last are filled in.
  void run(llvm::ArrayRef<int32_t> values, llvm::ArrayRef<int32_t> nodes, GroupReplay& result,
           Timeline* timeline);

 private:
  void unpack(const SimulationModel::Slot& slot);
  void materialise(int32_t value);
  void replay(int32_t node);
  void endUses();
  void hold(int32_t instance);
  void drop(int32_t instance);
  void dropCached(int32_t value);
  void changeBytes(int64_t bytes);
  MemoryCurve::Point now() const;
  int32_t allocate(int32_t storage);
  int32_t instanceFor(int32_t node, int32_t storage) const;
  int32_t heldBy(int32_t value, int32_t storage) const;
  /// Uses to come that keep a recomputed value in the cache.
  int32_t asked(int32_t value) const {
    return (state_.cacheable[value] != 0 ? pending_[value] : 0) + in_run_[value];
  }

  const SimulationModel& model_;
  const SimulationIndex& index_;
  const ReplayState& state_;
  const int32_t storage_count_;    ///< instances below are the forward's, by storage
  std::vector<int32_t> pending_;   ///< by value: what will still ask the replay cache for it
  std::vector<int32_t> in_run_;    ///< by value: consumers in the materialisation under way
  std::vector<char> cached_;       ///< by value
  std::vector<char> executed_;     ///< by node: replayed in this backward
  std::vector<char> in_run_node_;  ///< by node
  std::vector<int32_t> held_;  ///< by cached value and storage of it, as value_storages: instance
  std::vector<int32_t> made_;  ///< by the replay under way, as node_allocs
  std::vector<int32_t> holders_;  ///< by instance
  std::vector<int32_t> hold_of_;  ///< by storage: its entry in the result's holds, -1
  std::vector<int32_t> made_of_;  ///< by replays' instance: storage
  std::vector<int32_t> free_;     ///< instances that nothing holds any more
  std::vector<int32_t> in_use_;   ///< instances that unpacked tensors hold until their node is done
  int32_t in_use_until_ = -1;     ///< instant
  std::vector<int32_t> stack_;
  std::vector<int32_t> run_;  ///< nodes of the materialisation under way
  struct Event {
    int32_t instant;
    int32_t slot;
  };
  std::vector<Event> events_;
  int32_t instant_ = 0;
  GroupReplay* result_ = nullptr;
  Timeline* timeline_ = nullptr;
};

}  // namespace remat
