#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::ir {

/// What happened to a storage or a saved slot, in the order in which it happened.
enum class EventKind : uint8_t {
  kAlloc,     ///< id = storage: its bytes came to life
  kFree,      ///< id = storage: its bytes were given back
  kUnpack,    ///< id = slot: an autograd node asked for the tensor it had saved
  kApplyEnd,  ///< id = -1: the autograd node's own computation is over
  kRelease,   ///< id = slot: autograd dropped the slot
};

struct Event {
  EventKind kind;
  int32_t id;
};

/// Whose bytes a storage holds. Only kValue storages can be decided on.
enum class StorageRole : uint8_t {
  kExternal,  ///< lived before the step: parameters, buffers, inputs, given gradients; 0 bytes of
              ///< the step
  kValue,     ///< made by a node of the region and held by graph values only
  kOutput,    ///< a value that leaves the region, or that shares its bytes with one
  kInternal,  ///< saved by an autograd node, no graph value shows it
  kOther,     ///< scratch and gradients
};

struct StorageProfile {
  int64_t bytes = 0;
  StorageRole role = StorageRole::kOther;
};

/// One executed node of the region, in execution order. Nodes of branches not taken are absent.
struct NodeProfile {
  int32_t program_index = -1;    ///< position in the region program (pre-order over all blocks)
  std::string op;                ///< qualified name, `aten::conv2d`
  std::string module_path;       ///< `layer2.0.relu`; empty where unknown
  std::string source;            ///< `model.py:41`; empty where unknown
  double seconds = 0;            ///< of its forward execution, on the device
  std::vector<int32_t> inputs;   ///< values, redirected through the branches that were taken
  std::vector<int32_t> outputs;  ///< values
  std::vector<Event> events;     ///< kAlloc and kFree while the op ran
};

/// One value of the region program. Ids are the program's; unexecuted values have no storages.
struct ValueProfile {
  std::string name;
  std::string type;       ///< `Float[16, 64, 112, 112]`, `Int`, …: see tensorType
  bool tensor = false;    ///< a tensor or a container of tensors; anything else is simply kept
  int32_t producer = -1;  ///< index into Profile::nodes; -1: argument, parameter or not executed
  int32_t last_use = -1;  ///< index into Profile::nodes after which the executor drops it; a value
                          ///< that leaves the region has nodes.size()
  std::vector<int32_t> storages;
};

/// One tensor that one autograd node saved while `node` ran.
struct SlotProfile {
  int32_t node = -1;     ///< index into Profile::nodes
  int32_t value = -1;    ///< the value whose bytes it is; -1: internal to the op
  int32_t storage = -1;  ///< -1: undefined tensor or no storage
  int32_t cast_of = -1;  ///< the value that autocast made it of; `value` is -1 then
};

/// One execution of one autograd node, or (node == -1) what runs outside of the region's nodes: a
/// loss, gradients that leave through views, the caller.
struct BackwardStep {
  int32_t node = -1;  ///< index into Profile::nodes whose execution made the autograd node
  double seconds = 0;
  std::vector<Event> events;
};

/// What a device does at most: a step's time is foretold from operations and bytes (see
/// passes/roofline.h). Both 0: unknown.
struct Roofline {
  double flops = 0;  ///< floating-point operations per second
  double bytes = 0;  ///< moved to and from the device's memory per second
  bool known() const { return flops > 0 && bytes > 0; }
};

/// Everything that one training step of a region showed while all of its saved slots were kept.
///
/// Replaying `nodes` and then `backward` event by event gives the step's memory over time. The
/// profile is data: nothing in it refers to a graph or a device that must be at hand.
struct Profile {
  static constexpr int kVersion = 1;

  std::string graph_hash;  ///< of the prepared graph's text: a profile fits one graph
  std::string device;      ///< `cpu`, `cuda:0`: what its bytes and times are for
  std::string inputs;      ///< the sample inputs, see describeInputs
  std::string loss;        ///< of the step, see lossName; empty: not known
  int64_t peak_bytes = 0;  ///< measured in the same step as the events
  int64_t baseline_peak_bytes =
      0;                    ///< the unrewritten model's step peak, measured; 0: not measured
  double step_seconds = 0;  ///< fastest step
  /// The two batch sizes that were recorded, where all of the above and below was extrapolated from
  /// them; empty where it was measured.
  std::vector<int64_t> extrapolated_from;
  /// Bytes: storages are multiples of it, as the device's allocator counts them (CUDA's: 512); 1:
  /// they are as requested.
  int64_t rounding = 1;
  /// The device where the step ran, where that is another than `device` (passes/retarget.h); empty
  /// where they are the same.
  std::string recorded_on;
  /// Known: every time is derived from it, and none was measured.
  Roofline roofline;
  std::vector<NodeProfile> nodes;
  std::vector<ValueProfile> values;
  std::vector<StorageProfile> storages;
  std::vector<SlotProfile> slots;
  std::vector<BackwardStep> backward;

  /// Whether something of it is derived from other steps than those that it is for, so that a step
  /// measured here says nothing of it.
  bool derived() const { return !extrapolated_from.empty() || !recorded_on.empty(); }

  /// Sum of the nodes' forward seconds: what recompute shares are relative to.
  double forwardSeconds() const;
};

/// The least multiple of `rounding` that is not below `bytes`.
int64_t roundedUp(int64_t bytes, int64_t rounding);

/// JSON, one object, versioned. Reading throws std::runtime_error naming what is wrong.
std::string toJson(const Profile& profile);
Profile profileFromJson(const std::string& text);

}  // namespace remat::ir
