#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/ambient_state.h"
#include "runtime/packed_value.h"
#include "runtime/region_program.h"
#include "runtime/repeatable_mask.h"
#include "runtime/value_streams.h"

namespace remat::runtime {

class Session;

/// A value that replays start from.
struct Boundary {
  explicit Boundary(const c10::IValue& content) : packed(content), streams(content) {}
  PackedValue packed;
  ValueStreams streams;
};

/// The state of one forward execution of one region: what its replays start from. Shared by the
/// handles that stand in saved slots; gone with the last of them.
///
/// *Need.* A value is needed while a handle on it lives, or a recomputable node that reads it is
/// needed; a node is needed while one of its outputs is. A boundary is held from the moment the
/// first recomputable node reads it until nothing needs it any more and no later node of the
/// forward can come to.
///
/// Thread-safe after the forward. No lock is held while an operator runs or a tensor is freed.
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  explicit Frame(std::shared_ptr<const RegionProgram> program);
  ~Frame();

  const RegionProgram& program() const { return *program_; }

  // --- Forward, called by the executor on one thread ---

  /// Says that what branch output `output` names is `source` in this execution.
  void redirect(int32_t output, int32_t source) { redirect_[output] = resolve(source); }
  int32_t resolve(int32_t value) const { return redirect_[value] < 0 ? value : redirect_[value]; }
  /// Holds `value` as a boundary, until endBoundary finds that nothing needs it. Called when a
  /// recomputable node reads it, and not when it is made: it may be written in between.
  void holdBoundary(int32_t value, const c10::IValue& content);
  void endBoundary(int32_t value);
  /// The forward is over: boundaries that nothing needs are dropped.
  void endForward();
  void keepMask(int32_t node, std::unique_ptr<RepeatableMask> mask) {
    masks_[node] = std::move(mask);
  }
  /// What a replayed norm gets for its running statistics: in evaluation mode a copy of what it
  /// read (their writers bump no version), in training mode a meta tensor to make one like to throw
  /// away.
  void keepStatistics(int32_t node, std::vector<QueuedValue> copies) {
    statistics_[node] = std::move(copies);
  }

  /// Which tensors among the inputs of `node` required gradients, in forEachTensor's order.
  void keepGradientFlags(int32_t node, std::vector<bool> flags) {
    gradient_flags_[node] = std::move(flags);
  }
  /// Which of the slots that `node` saved, in their order, hold a handle on its internals.
  void keepInternals(int32_t node, std::vector<bool> slots) { internals_[node] = std::move(slots); }

  // --- Handles ---

  void addHandle(int32_t value);
  void dropHandle(int32_t value);

  /// The value's tensor (element `element` of a list value, or -1), recomputed if it is not at
  /// hand. Called when a slot is unpacked; counts as one use of the value in the running backward.
  /// Throws c10::Error naming value and source line if a boundary was written since the forward.
  at::Tensor use(int32_t value, int32_t element);

 private:
  friend class Materialization;
  friend class SessionEnd;

  /// The running backward's session, begun with its first use of this frame; null outside of a
  /// backward.
  std::shared_ptr<Session> session();
  void endSession(int graph_task);

  // Need counting; mutex_ held. What falls out of use is moved to `garbage`, to be freed without
  // the lock.
  using Garbage = std::vector<std::shared_ptr<const Boundary>>;
  void raiseNeed(int32_t value);
  void lowerNeed(int32_t value, Garbage& garbage);

  c10::IValue unpackBoundary(int32_t value, const Boundary& boundary) const;

  std::shared_ptr<const RegionProgram> program_;
  AmbientState ambient_;
  std::vector<int32_t> redirect_;                                       ///< by value id; -1: itself
  std::unordered_map<int32_t, std::unique_ptr<RepeatableMask>> masks_;  ///< by node id
  std::unordered_map<int32_t, std::vector<QueuedValue>> statistics_;    ///< by node id
  std::unordered_map<int32_t, std::vector<bool>> gradient_flags_;       ///< by node id
  std::unordered_map<int32_t, std::vector<bool>> internals_;            ///< by node id

  std::mutex mutex_;
  std::condition_variable computed_;
  std::vector<int32_t> need_;                                   ///< by value id
  std::vector<int32_t> handles_;                                ///< by value id
  std::vector<int32_t> needed_outputs_;                         ///< by node id
  std::vector<std::shared_ptr<const Boundary>> boundaries_;     ///< by value id
  std::unordered_map<int, std::shared_ptr<Session>> sessions_;  ///< by graph task
  bool forward_ended_ = false;
};

}  // namespace remat::runtime
