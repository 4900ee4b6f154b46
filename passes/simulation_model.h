#pragma once

#include <cstdint>
#include <vector>

#include "llvm/ADT/ArrayRef.h"
#include "passes/planning_input.h"

namespace remat {

/// Rows of different lengths in one flat array.
class Rows {
 public:
  void beginRow() { offsets_.push_back(static_cast<int32_t>(items_.size())); }
  void push(int32_t item) {
    items_.push_back(item);
    offsets_.back() = static_cast<int32_t>(items_.size());
  }
  int32_t offset(int32_t row) const { return offsets_[row]; }
  int32_t itemCount() const { return static_cast<int32_t>(items_.size()); }
  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  llvm::ArrayRef<int32_t> operator[](int32_t row) const {
    return {items_.data() + offsets_[row], items_.data() + offsets_[row + 1]};
  }

 private:
  std::vector<int32_t> offsets_{0};
  std::vector<int32_t> items_;
};

/// A profile in the form in which one plan after the other is simulated: flat arrays, dense ids,
/// without the nodes, values, storages and events that no decision changes (scalars, sizes,
/// parameters, unpacking of tensors that are always kept); runs of allocations and frees that
/// happen in every plan are one sum.
///
/// Ids here are the model's own: a *node* executes, a *value* is a tensor with a producer, a
/// *storage* is a kValue storage, or a cast of one, that a node allocates. Times of all three are
/// program positions. Build it once per profile; it holds no reference to the profile and is stale
/// as soon as the profile or the legality changes.
struct SimulationModel {
  /// Bytes that come and go in a run of events: `peak` above its start at most, `delta` at its end.
  struct Bulk {
    int64_t peak = 0;
    int64_t delta = 0;
    void alloc(int64_t bytes);
    void free(int64_t bytes) { delta -= bytes; }
  };

  static constexpr double kTicksPerSecond = 1e12;

  struct Node {
    Bulk forward;             ///< frees of kValue storages left out
    int64_t replay_peak = 0;  ///< bytes above the start while it is replayed
    int64_t ticks = 0;        ///< time, in whole units, so that sums don't depend on their order
    double seconds = 0;       ///< the same in seconds
    int32_t profile_node = -1;
  };

  struct Value {
    int32_t producer = -1;
    int32_t dies_after = -1;  ///< node after which the executor drops it; nodes.size(): never
    bool at_hand =
        false;  ///< in every plan: not replayable, or root of a storage that is never decided on
  };

  struct Storage {
    int64_t bytes = 0;
    int32_t profile_storage = -1;
    int32_t root = -1;        ///< value; -1: none with a producer
    int32_t dies_after = -1;  ///< node after which no value in the executor's hands holds it
    int32_t slots = 0;        ///< saved slots that hold it
    int32_t opaque_slots =
        0;  ///< of these, the ones that match no value and therefore keep it in every plan
    bool candidate = false;  ///< the planner may decide to recompute it
    bool dropped = false;    ///< a candidate that is recomputed whatever the plan says
    bool escapes = false;    ///< never dies in the step
    bool internal = false;   ///< stands for what a node saved inside of itself
    bool cast = false;       ///< what autocast made of a value
  };

  struct Slot {
    int32_t value = -1;
    int32_t storage = -1;
    /// What was saved is not the value but what autocast made of it: where the value's storage is
    /// kept, the slot holds this one instead, and else makes it again from the value. -1: no cast.
    int32_t cast = -1;
    bool outlives_release = false;  ///< dropped by autograd while its node still computes with it
    bool unpacked = false;          ///< some backward asks for it
  };

  enum class OpKind : uint8_t { kNone, kUnpack, kApplyEnd, kRelease };

  /// What happens next in the backward: first the bulk, then the op.
  struct BackwardOp {
    Bulk before;
    OpKind kind = OpKind::kNone;
    int32_t slot = -1;
    int32_t profile_step = -1;
    int32_t node = -1;  ///< the node whose backward it is; -1: nobody's
  };

  explicit SimulationModel(const PlanningInput& input);

  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<Storage> storages;
  std::vector<Slot> slots;
  std::vector<BackwardOp> backward;

  Rows node_inputs;     ///< distinct values that a replay of the node needs
  Rows node_outputs;    ///< values
  Rows node_allocs;     ///< storages that a replay of the node makes again
  Rows value_storages;  ///< storages
  Rows value_roots;     ///< candidate storages whose root the value is

  std::vector<int32_t> candidates;        ///< storages, in order of their root's producer
  std::vector<int32_t> profile_to_model;  ///< storage ids; -1: none
  int64_t measured_peak = 0;              ///< Profile::peak_bytes

 private:
  struct Builder;
};

}  // namespace remat
