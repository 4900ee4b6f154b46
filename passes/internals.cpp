#include "passes/internals.h"

#include <algorithm>
#include <map>

#include "passes/marks.h"

namespace remat {
namespace {

using ir::EventKind;
using ir::StorageRole;

/// A node's own storages of role kInternal, in the order of their allocation.
using Internals = std::map<int32_t, std::vector<int32_t>>;

/// By storage, the node whose slots alone hold it; -1: nobody's or several nodes'.
std::vector<int32_t> owners(const ir::Profile& profile) {
  constexpr int32_t kNobody = -2;
  std::vector<int32_t> owner(profile.storages.size(), kNobody);
  for (const ir::SlotProfile& slot : profile.slots) {
    if (slot.storage < 0) continue;
    int32_t& present = owner[slot.storage];
    const bool mine = slot.value < 0 && (present == kNobody || present == slot.node);
    present = mine ? slot.node : -1;
  }
  return owner;
}

Internals findInternals(const PlanningInput& input) {
  const ir::Profile& profile = input.profile;
  const std::vector<int32_t> owner = owners(profile);
  Internals found;
  for (size_t node = 0; node < profile.nodes.size(); ++node) {
    if (input.replayable[node] == 0) continue;
    const auto id = static_cast<int32_t>(node);
    std::vector<int32_t> storages;
    int64_t bytes = 0;
    for (const ir::Event& event : profile.nodes[node].events) {
      if (event.kind != EventKind::kAlloc || owner[event.id] != id ||
          profile.storages[event.id].role != StorageRole::kInternal) {
        continue;
      }
      storages.push_back(event.id);
      bytes += profile.storages[event.id].bytes;
    }
    if (!storages.empty() && bytes >= input.minimum_bytes) found[id] = std::move(storages);
  }
  return found;
}

/// Everything of `storages` becomes `merged`: the first allocation stays, in the place of all.
void merge(std::vector<ir::Event>& events, const std::vector<int32_t>& storages, int32_t merged) {
  std::vector<ir::Event> result;
  bool allocated = false;
  for (ir::Event event : events) {
    const bool of_storage = event.kind == EventKind::kAlloc || event.kind == EventKind::kFree;
    if (of_storage && std::find(storages.begin(), storages.end(), event.id) != storages.end()) {
      if (event.kind == EventKind::kFree || allocated) continue;
      allocated = true;
      event.id = merged;
    }
    result.push_back(event);
  }
  events = std::move(result);
}

/// Frees of values' storages follow from their holders; recorded ones would count twice.
void removeFrees(ir::Profile& profile, const std::vector<char>& merged) {
  const auto freed = [&](const ir::Event& event) {
    return event.kind == EventKind::kFree && merged[event.id] != 0;
  };
  const auto remove = [&](std::vector<ir::Event>& events) {
    events.erase(std::remove_if(events.begin(), events.end(), freed), events.end());
  };
  for (ir::NodeProfile& node : profile.nodes) remove(node.events);
  for (ir::BackwardStep& step : profile.backward) remove(step.events);
}

}  // namespace

void exposeInternals(PlanningInput& input) {
  ir::Profile& profile = input.profile;
  input.first_internal = static_cast<int32_t>(profile.values.size());
  const Internals found = findInternals(input);
  std::vector<char> merged(profile.storages.size(), 0);
  for (const auto& [node, storages] : found) {
    for (const int32_t storage : storages) merged[storage] = 1;
  }
  removeFrees(profile, merged);
  std::vector<int32_t> value_of(profile.storages.size(), -1);
  for (const auto& [node, storages] : found) {
    const auto value = static_cast<int32_t>(profile.values.size());
    const auto storage = static_cast<int32_t>(profile.storages.size());
    int64_t bytes = 0;
    for (const int32_t part : storages) {
      bytes += profile.storages[part].bytes;
      value_of[part] = value;
    }
    profile.storages.push_back({bytes, StorageRole::kValue});
    ir::ValueProfile entry;
    entry.name = "inside " + profile.nodes[node].op;
    entry.tensor = true;
    entry.producer = node;
    entry.last_use = node;
    entry.storages = {storage};
    profile.values.push_back(std::move(entry));
    profile.nodes[node].outputs.push_back(value);
    merge(profile.nodes[node].events, storages, storage);
  }
  for (ir::SlotProfile& slot : profile.slots) {
    if (slot.storage < 0 || slot.value >= 0 || value_of[slot.storage] < 0) continue;
    slot.value = value_of[slot.storage];
    slot.storage = profile.values[slot.value].storages[0];
  }
}

int32_t resultBeside(const PlanningInput& input, int32_t internal) {
  const ir::Profile& profile = input.profile;
  for (const int32_t output : profile.nodes[profile.values[internal].producer].outputs) {
    if (output < input.first_internal && profile.values[output].tensor) return output;
  }
  return -1;
}

std::vector<int32_t> regeneratedValues(const PlanningInput& input, const ir::Plan& plan) {
  const ir::Profile& profile = input.profile;
  const std::vector<char> recomputed = recomputedStorages(input, plan);
  std::vector<int32_t> values;
  for (size_t value = input.first_internal; value < profile.values.size(); ++value) {
    if (recomputed[profile.values[value].storages[0]] == 0) continue;
    const int32_t result = resultBeside(input, static_cast<int32_t>(value));
    if (result >= 0) values.push_back(result);
  }
  return values;
}

}  // namespace remat
