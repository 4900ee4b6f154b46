#pragma once

#include <cstdint>
#include <vector>

#include "passes/evaluation.h"
#include "passes/simulation_model.h"

namespace remat {

/// Scratch of one walk. Recomputed bytes of a storage are a second *instance* of it, counted apart
/// from the forward's: instance s is what the forward allocated, instance s + storages.size() what
/// a replay did.
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
  bool isHandle(const SimulationModel::Slot& slot) const {
    return slot.value >= 0 && !kept_[slot.storage];
  }
  int32_t instance(int32_t storage) const {
    return storage + (replayed_[storage] ? storage_count_ : 0);
  }

  const SimulationModel& model_;
  const int32_t storage_count_;
  std::vector<char> kept_;          ///< by storage
  std::vector<char> replayed_;      ///< by storage: comes from a replay wherever a replay shows it
  std::vector<char> recomputable_;  ///< by value
  std::vector<char> start_;         ///< by value: a replay may start from it, so the frame holds it
  std::vector<int32_t> need_;       ///< by value: live handles and needed consumers
  std::vector<int32_t> pending_;    ///< by value: what will still ask the replay cache for it
  std::vector<int32_t> in_run_;     ///< by value: consumers in the materialisation under way
  std::vector<int32_t> horizon_;    ///< by value: node after which an unneeded boundary is dropped
  std::vector<int32_t> needed_outputs_;  ///< by node
  std::vector<char> executed_;           ///< by node: replayed in this backward
  std::vector<char> cached_;             ///< by value
  std::vector<int32_t> holders_;         ///< by instance
  std::vector<int32_t> dies_after_;      ///< by storage
  std::vector<int64_t> dying_;           ///< by node: bytes that die after it
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
