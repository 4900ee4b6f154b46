#include "passes/simulation_model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "ir/plan.h"
#include "llvm/ADT/STLExtras.h"

namespace remat {

using ir::Event;
using ir::EventKind;
using ir::StorageRole;

void SimulationModel::Bulk::alloc(int64_t bytes) {
  delta += bytes;
  peak = std::max(peak, delta);
}

/// Fills a model from a profile, one table after the other; the tables refer to each other by dense
/// ids.
struct SimulationModel::Builder {
  Builder(const PlanningInput& input, SimulationModel& model)
      : input(input), profile(input.profile), model(model) {}

  void build() {
    if (input.replayable.size() != profile.nodes.size()) {
      throw std::invalid_argument("planning input: " + std::to_string(input.replayable.size()) +
                                  " replayable flags for " + std::to_string(profile.nodes.size()) +
                                  " nodes");
    }
    model.measured_peak = profile.peak_bytes;
    findRoots();
    findCasts();
    collectNodes();
    collectStorages();
    collectValues();
    chooseCandidates();
    connectValues();
    connectNodes();
    collectSlots();
    collectBackward();
  }

  void findRoots() {
    root.assign(profile.storages.size(), -1);
    replayable.assign(profile.storages.size(), 1);
    std::vector<int32_t> root_producer(profile.storages.size(), INT32_MAX);
    for (size_t value = 0; value < profile.values.size(); ++value) {
      const ir::ValueProfile& from = profile.values[value];
      for (int32_t storage : from.storages) {
        if (from.producer < 0 || !input.replayable[from.producer]) replayable[storage] = 0;
        if (from.producer >= root_producer[storage]) continue;
        root_producer[storage] = from.producer;
        root[storage] = static_cast<int32_t>(value);
      }
    }
  }

  /// Storages that only hold what autocast made of one value, whose own storage may be decided on.
  void findCasts() {
    std::vector<char> other(profile.storages.size(), 0);
    for (const ir::ValueProfile& value : profile.values) {
      for (int32_t storage : value.storages) other[storage] = 1;
    }
    cast_of.assign(profile.storages.size(), -1);
    for (const ir::SlotProfile& slot : profile.slots) {
      if (slot.storage < 0) continue;
      int32_t& of = cast_of[slot.storage];
      if (slot.cast_of < 0 || (of >= 0 && of != slot.cast_of)) other[slot.storage] = 1;
      of = slot.cast_of;
    }
    for (size_t storage = 0; storage < cast_of.size(); ++storage) {
      int32_t& of = cast_of[storage];
      if (of < 0) continue;
      const std::vector<int32_t>& storages = profile.values[of].storages;
      if (other[storage] != 0 || storages.size() != 1 ||
          profile.storages[storages[0]].role != StorageRole::kValue) {
        of = -1;
      }
    }
  }

  /// Whether the storage's end follows from who holds it, not from the profile.
  bool isHeld(int32_t storage) const {
    return profile.storages[storage].role == StorageRole::kValue || cast_of[storage] >= 0;
  }

  /// No tensor, no producer, or at hand without holding anything that a plan decides on: a
  /// parameter, say.
  bool isIrrelevant(int32_t value) const {
    const ir::ValueProfile& from = profile.values[value];
    if (!from.tensor || from.producer < 0) return true;
    bool at_hand = !input.replayable[from.producer];
    for (int32_t storage : from.storages) {
      const StorageRole role = profile.storages[storage].role;
      if (role == StorageRole::kValue) return false;
      const bool outside = role == StorageRole::kExternal || role == StorageRole::kOutput;
      at_hand |= outside && root[storage] == value;
    }
    return at_hand;
  }

  /// The last node that matters at or before a profile's node.
  int32_t position(int32_t profile_node) const {
    return profile_node >= static_cast<int32_t>(node_position.size())
               ? static_cast<int32_t>(model.nodes.size())
               : node_position[profile_node];
  }

  /// Nodes without events, relevant results and slots do nothing that a plan could change.
  void collectNodes() {
    std::vector<char> matters(profile.nodes.size(), 0);
    for (size_t node = 0; node < profile.nodes.size(); ++node) {
      matters[node] = !profile.nodes[node].events.empty();
    }
    for (size_t value = 0; value < profile.values.size(); ++value) {
      if (!isIrrelevant(static_cast<int32_t>(value))) matters[profile.values[value].producer] = 1;
    }
    for (const ir::SlotProfile& slot : profile.slots) {
      if (slot.node >= 0) matters[slot.node] = 1;
    }
    node_position.resize(profile.nodes.size());
    for (size_t node = 0; node < profile.nodes.size(); ++node) {
      if (matters[node]) {
        model.nodes.emplace_back();
        model.nodes.back().profile_node = static_cast<int32_t>(node);
        Node& to = model.nodes.back();
        to.ticks = std::llround(profile.nodes[node].seconds * kTicksPerSecond);
        to.seconds = static_cast<double>(to.ticks) / kTicksPerSecond;
      }
      node_position[node] = static_cast<int32_t>(model.nodes.size()) - 1;
    }
  }

  bool isDecided(int32_t storage) const { return model.profile_to_model[storage] >= 0; }

  /// A kValue storage enters the model with its allocation; one that is never allocated has no
  /// bytes here.
  void collectStorages() {
    model.profile_to_model.assign(profile.storages.size(), -1);
    for (Node& node : model.nodes) {
      Bulk replay;
      model.node_allocs.beginRow();
      std::vector<int32_t> own;
      for (const Event& event : profile.nodes[node.profile_node].events) {
        if (event.kind != EventKind::kAlloc && event.kind != EventKind::kFree) continue;
        const ir::StorageProfile& storage = profile.storages[event.id];
        const bool is_held = isHeld(event.id);
        if (event.kind == EventKind::kFree) {
          if (is_held) continue;
          node.forward.free(storage.bytes);
          if (llvm::is_contained(own, event.id)) replay.free(storage.bytes);
          continue;
        }
        if (is_held && isDecided(event.id)) continue;
        node.forward.alloc(storage.bytes);
        replay.alloc(storage.bytes);
        own.push_back(event.id);
        if (!is_held) continue;
        const auto id = static_cast<int32_t>(model.storages.size());
        model.profile_to_model[event.id] = id;
        model.storages.emplace_back();
        model.storages.back().bytes = storage.bytes;
        model.storages.back().profile_storage = event.id;
        model.storages.back().dies_after = static_cast<int32_t>(&node - model.nodes.data());
        // A replay of the node makes the cast for itself alone.
        model.storages.back().cast = cast_of[event.id] >= 0;
        if (!model.storages.back().cast) model.node_allocs.push(id);
      }
      node.replay_peak = replay.peak;
    }
  }

  void collectValues() {
    value_id.assign(profile.values.size(), -1);
    for (size_t value = 0; value < profile.values.size(); ++value) {
      const auto id = static_cast<int32_t>(value);
      if (isIrrelevant(id)) continue;
      const ir::ValueProfile& from = profile.values[value];
      value_id[value] = static_cast<int32_t>(model.values.size());
      Value to;
      to.producer = position(from.producer);
      to.dies_after = position(std::max(from.last_use, from.producer));
      to.at_hand = !input.replayable[from.producer];
      model.values.push_back(to);
    }
  }

  void chooseCandidates() {
    for (size_t storage = 0; storage < profile.storages.size(); ++storage) {
      const int32_t root_value = root[storage] < 0 ? -1 : value_id[root[storage]];
      const StorageRole role = profile.storages[storage].role;
      const int32_t id = model.profile_to_model[storage];
      if (id >= 0) {
        Storage& to = model.storages[id];
        to.root = root_value;
        to.internal = root[storage] >= input.first_internal;
        const char forced = input.forced.empty() ? PlanningInput::kFree : input.forced[storage];
        to.dropped = forced == ir::kRecompute;
        to.candidate = root_value >= 0 && replayable[storage] && forced != ir::kKeep &&
                       to.bytes >= std::max<int64_t>(input.minimum_bytes, 1);
        if (to.candidate) continue;
      }
      // An op's internals and scratch are nobody's value, whatever a value may claim to hold.
      if (root_value >= 0 && role != StorageRole::kInternal && role != StorageRole::kOther) {
        model.values[root_value].at_hand = true;
      }
    }
  }

  void connectValues() {
    std::vector<std::vector<int32_t>> roots(model.values.size());
    for (size_t storage = 0; storage < model.storages.size(); ++storage) {
      if (model.storages[storage].candidate) {
        roots[model.storages[storage].root].push_back(static_cast<int32_t>(storage));
      }
    }
    for (size_t value = 0; value < profile.values.size(); ++value) {
      const int32_t id = value_id[value];
      if (id < 0) continue;
      model.value_storages.beginRow();
      std::vector<int32_t> held = profile.values[value].storages;
      llvm::sort(held);
      held.erase(std::unique(held.begin(), held.end()), held.end());
      for (int32_t profile_storage : held) {
        const int32_t storage = model.profile_to_model[profile_storage];
        if (storage < 0) continue;
        model.value_storages.push(storage);
        Storage& to = model.storages[storage];
        to.dies_after = std::max(to.dies_after, model.values[id].dies_after);
        to.escapes |= to.dies_after >= static_cast<int32_t>(model.nodes.size());
      }
      model.value_roots.beginRow();
      for (int32_t storage : roots[id]) model.value_roots.push(storage);
      if (!model.values[id].at_hand) {
        model.candidates.insert(model.candidates.end(), roots[id].begin(), roots[id].end());
      }
    }
    // A list that is the root of several storages is at hand as soon as one of them is never
    // decided on.
    for (Storage& storage : model.storages) {
      storage.candidate = storage.candidate && !model.values[storage.root].at_hand;
    }
    std::stable_sort(model.candidates.begin(), model.candidates.end(), [&](int32_t a, int32_t b) {
      return model.values[model.storages[a].root].producer <
             model.values[model.storages[b].root].producer;
    });
  }

  void connectNodes() {
    std::vector<std::vector<int32_t>> outputs(model.nodes.size());
    for (size_t value = 0; value < model.values.size(); ++value) {
      outputs[model.values[value].producer].push_back(static_cast<int32_t>(value));
    }
    for (size_t node = 0; node < model.nodes.size(); ++node) {
      model.node_outputs.beginRow();
      for (int32_t value : outputs[node]) model.node_outputs.push(value);
      std::vector<int32_t> inputs;
      for (int32_t value : profile.nodes[model.nodes[node].profile_node].inputs) {
        const int32_t id = value_id[value];
        if (id >= 0 && model.values[id].producer < static_cast<int32_t>(node)) inputs.push_back(id);
      }
      llvm::sort(inputs);
      inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
      model.node_inputs.beginRow();
      for (int32_t value : inputs) model.node_inputs.push(value);
    }
  }

  void collectSlots() {
    slot_id.assign(profile.slots.size(), -1);
    for (size_t slot = 0; slot < profile.slots.size(); ++slot) {
      const ir::SlotProfile& from = profile.slots[slot];
      const int32_t storage = from.storage < 0 ? -1 : model.profile_to_model[from.storage];
      if (storage < 0) continue;
      Slot to;
      to.storage = storage;
      to.value = from.value < 0 ? -1 : value_id[from.value];
      if (model.storages[storage].cast && makeCast(from.cast_of, to)) {
        slot_id[slot] = static_cast<int32_t>(model.slots.size());
        model.slots.push_back(to);
        continue;
      }
      model.storages[storage].slots++;
      if (to.value < 0) model.storages[storage].opaque_slots++;
      slot_id[slot] = static_cast<int32_t>(model.slots.size());
      model.slots.push_back(to);
    }
  }

  /// Whether the slot's cast is one of a value whose storage may be decided on.
  bool makeCast(int32_t value, Slot& slot) const {
    const int32_t source = model.profile_to_model[profile.values[value].storages[0]];
    if (source < 0 || value_id[value] < 0) return false;
    slot = {value_id[value], source, slot.storage};
    return true;
  }

  /// Unpacking matters where the slot can be a handle, or where its kept tensor is dropped while in
  /// use.
  void collectBackward() {
    std::vector<char> released(profile.slots.size(), 0);
    Bulk bulk;
    auto emit = [&](OpKind kind, int32_t slot, size_t step) {
      const int32_t node = profile.backward[step].node;
      model.backward.push_back(
          {bulk, kind, slot, static_cast<int32_t>(step), node < 0 ? -1 : position(node)});
      bulk = Bulk();
    };
    for (size_t step = 0; step < profile.backward.size(); ++step) {
      const std::vector<Event>& events = profile.backward[step].events;
      bool holds = false;
      for (const Event& event : events) {
        switch (event.kind) {
          case EventKind::kAlloc:
          case EventKind::kFree: {
            const ir::StorageProfile& storage = profile.storages[event.id];
            if (isHeld(event.id)) break;
            if (event.kind == EventKind::kAlloc) {
              bulk.alloc(storage.bytes);
            } else {
              bulk.free(storage.bytes);
            }
            break;
          }
          case EventKind::kUnpack: {
            const int32_t slot = slot_id[event.id];
            if (slot < 0 || released[event.id]) break;
            const Slot& unpacked = model.slots[slot];
            const bool decided = unpacked.value >= 0 && model.storages[unpacked.storage].candidate;
            if (droppedInUse(events, &event)) model.slots[slot].outlives_release = true;
            if (!decided && !model.slots[slot].outlives_release) break;
            model.slots[slot].unpacked = true;
            emit(OpKind::kUnpack, slot, step);
            holds = true;
            break;
          }
          case EventKind::kApplyEnd:
            if (holds) emit(OpKind::kApplyEnd, -1, step);
            holds = false;
            break;
          case EventKind::kRelease:
            if (slot_id[event.id] < 0 || released[event.id]) break;
            released[event.id] = 1;
            emit(OpKind::kRelease, slot_id[event.id], step);
            break;
        }
      }
      if (holds) emit(OpKind::kApplyEnd, -1, step);
      if (bulk.peak != 0 || bulk.delta != 0) emit(OpKind::kNone, -1, step);
    }
  }

  static bool droppedInUse(const std::vector<Event>& events, const Event* unpack) {
    const Event* end = events.data() + events.size();
    for (const Event* event = unpack + 1; event != end; ++event) {
      if (event->kind == EventKind::kApplyEnd) return false;
      if (event->kind == EventKind::kRelease && event->id == unpack->id) return true;
    }
    return false;
  }

  const PlanningInput& input;
  const ir::Profile& profile;
  SimulationModel& model;
  std::vector<int32_t> root;           ///< by profile storage: value
  std::vector<int32_t> cast_of;        ///< by profile storage: the value it is a cast of; -1: none
  std::vector<char> replayable;        ///< by profile storage: every node that makes or views it is
  std::vector<int32_t> node_position;  ///< by profile node
  std::vector<int32_t> value_id;       ///< by profile value
  std::vector<int32_t> slot_id;        ///< by profile slot
};

SimulationModel::SimulationModel(const PlanningInput& input) { Builder(input, *this).build(); }

}  // namespace remat
