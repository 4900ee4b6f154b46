#pragma once

#include <cstdint>
#include <vector>

#include "passes/evaluation.h"
#include "passes/simulation_model.h"

namespace remat {

/// Scratch of one walk. Bytes are counted by *instance*: instance s below storages.size() is what
/// the forward allocated of storage s, every further one what a replay allocated, once more while
/// an earlier one may still be in use.
class SimulationWalk {
 public:
  explicit SimulationWalk(const SimulationModel& model);

  Evaluation run(const std::vector<char>& keep, const EvaluationLimits& limits, Timeline* timeline);

 private:
  void decide(const std::vector<char>& keep);
  void countNeeds();
  void countHolders();
  template <bool kTrace>
  bool runForward();
  template <bool kTrace>
  bool runBackward();
  template <bool kTrace>
  void unpack(const SimulationModel::Slot& slot);
  template <bool kTrace>
  void materialise(int32_t value);
  template <bool kTrace>
  void replay(int32_t node);
  template <bool kTrace>
  void drop(int32_t instance);
  template <bool kTrace>
  void dropCached(int32_t value);
  template <bool kTrace>
  void dropNeed(int32_t value);
  template <bool kTrace>
  void raisePeak(int64_t bytes);

  bool recomputable(int32_t value) const { return recomputable_[value] != 0; }
  /// Uses to come that keep a recomputed value in the cache.
  int32_t asked(int32_t value) const {
    return (cacheable_[value] != 0 ? pending_[value] : 0) + in_run_[value];
  }
  bool isHandle(const SimulationModel::Slot& slot) const {
    return slot.value >= 0 && !kept_[slot.storage];
  }
  int32_t allocate(int32_t storage);
  int32_t instanceFor(int32_t node, int32_t storage) const;
  int32_t heldBy(int32_t value, int32_t storage) const;

  const SimulationModel& model_;
  const int32_t storage_count_;
  std::vector<char> kept_;          ///< by storage
  std::vector<char> replayed_;      ///< by storage: comes from a replay wherever a replay shows it
  std::vector<char> each_time_;     ///< by storage: recomputed for every use
  std::vector<char> undecided_;     ///< by value: recomputable where no storage of it is kept
  std::vector<char> recomputable_;  ///< by value
  std::vector<char> cacheable_;     ///< by value: stays from one use to the next
  bool all_cacheable_ = true;
  std::vector<char> start_;       ///< by value: a replay may start from it, so the frame holds it
  std::vector<int32_t> need_;     ///< by value: live handles and needed consumers
  std::vector<int32_t> pending_;  ///< by value: what will still ask the replay cache for it
  std::vector<int32_t> in_run_;   ///< by value: consumers in the materialisation under way
  std::vector<int32_t> horizon_;  ///< by value: node after which an unneeded boundary is dropped
  std::vector<int32_t> needed_outputs_;  ///< by node
  std::vector<char> executed_;           ///< by node: replayed in this backward
  std::vector<char> cached_;             ///< by value
  std::vector<int32_t> holders_;         ///< by instance
  std::vector<int32_t> made_of_;         ///< by replays' instance: storage
  std::vector<int32_t> free_;            ///< instances that nothing holds any more
  std::vector<int32_t> held_;  ///< by cached value and storage of it, as value_storages: instance
  std::vector<int32_t> made_;  ///< by the replay under way, as node_allocs
  std::vector<int32_t> dies_after_;  ///< by storage
  std::vector<int64_t> dying_;       ///< by node: bytes that die after it
  std::vector<int32_t> in_use_;  ///< instances that unpacked tensors hold until their node is done
  std::vector<int32_t> stack_;
  std::vector<int32_t> run_;       ///< nodes of the materialisation under way
  std::vector<char> in_run_node_;  ///< by node
  EvaluationLimits limits_;
  int64_t live_ = 0;
  int32_t instant_ = 0;
  Evaluation result_;
  Timeline* timeline_ = nullptr;
};

}  // namespace remat
