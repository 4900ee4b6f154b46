#include "passes/blockers.h"

#include <algorithm>
#include <map>

#include "passes/notes.h"
#include "passes/recorded_lives.h"
#include "passes/simulator.h"

namespace remat {
namespace {

using ir::EventKind;
using ir::StorageRole;

/// By storage, the first node to make or view it that may not be replayed; -1: none.
std::vector<int32_t> refusedHolders(const PlanningInput& input) {
  const ir::Profile& profile = input.profile;
  std::vector<int32_t> holder(profile.storages.size(), -1);
  const auto offer = [&](int32_t storage, int32_t node) {
    if (node < 0 || storage < 0 || input.replayable[node] != 0) return;
    if (holder[storage] < 0 || node < holder[storage]) holder[storage] = node;
  };
  for (const ir::ValueProfile& value : profile.values) {
    for (const int32_t storage : value.storages) offer(storage, value.producer);
  }
  for (const ir::SlotProfile& slot : profile.slots) {
    if (slot.storage >= 0 && profile.storages[slot.storage].role == StorageRole::kInternal) {
      offer(slot.storage, slot.node);
    }
  }
  return holder;
}

}  // namespace

std::vector<Blocker> blockers(const PlanningInput& input, const ir::Plan& plan,
                              const std::vector<ir::Remark>& remarks, size_t count) {
  const ir::Profile& profile = input.profile;
  Simulator simulator(input);
  const Timeline timeline = simulator.trace(plan.keep);
  const int32_t peak = timeline.evaluation.peak_instant;
  const auto nodes = static_cast<int32_t>(profile.nodes.size());
  if (peak < 0 || peak >= static_cast<int32_t>(timeline.profile_index.size())) return {};
  const int32_t peak_position =
      timeline.profile_index[peak] + (peak >= timeline.forward_instants ? nodes : 0);
  const std::vector<int32_t> holder = refusedHolders(input);
  const std::vector<Life> lives = recordedLives(profile);
  std::map<int32_t, Blocker> by_program_index;  // iterations of a loop are one
  for (size_t storage = 0; storage < holder.size(); ++storage) {
    if (holder[storage] < 0) continue;
    const StorageRole role = profile.storages[storage].role;
    const bool value = role == StorageRole::kValue && timeline.persists[storage] != 0 &&
                       timeline.first_alive[storage] <= peak &&
                       timeline.last_alive[storage] >= peak;
    const Life& life = lives[storage];
    const bool internal = role == StorageRole::kInternal && life.from >= 0 &&
                          life.from <= peak_position &&
                          (life.until < 0 || life.until >= peak_position);
    if (!value && !internal) continue;
    const ir::NodeProfile& node = profile.nodes[holder[storage]];
    Blocker& blocker = by_program_index[node.program_index];
    blocker.op = node.op;
    blocker.module_path = node.module_path;
    blocker.source = node.source;
    blocker.bytes += profile.storages[storage].bytes;
  }
  std::vector<Blocker> result;
  result.reserve(by_program_index.size());
  for (auto& [index, blocker] : by_program_index) result.push_back(std::move(blocker));
  std::stable_sort(result.begin(), result.end(),
                   [](const Blocker& a, const Blocker& b) { return a.bytes > b.bytes; });
  result.resize(std::min(result.size(), count));
  for (Blocker& blocker : result) {
    ir::NodeProfile place;
    place.op = blocker.op;
    place.module_path = blocker.module_path;
    place.source = blocker.source;
    blocker.reasons = refusals(remarks, place);
  }
  return result;
}

std::string blockersText(const std::vector<Blocker>& blockers) {
  std::string text;
  for (const Blocker& blocker : blockers) {
    text += text.empty() ? "; kept at its peak: " : ", ";
    text += ir::formatBytes(blocker.bytes) + " " + blocker.op;
    if (!blocker.module_path.empty()) text += " at " + ir::modulePathText(blocker.module_path);
    if (!blocker.source.empty()) text += " (" + blocker.source + ")";
    text += " [" + blocker.reasons + "]";
  }
  return text;
}

}  // namespace remat
