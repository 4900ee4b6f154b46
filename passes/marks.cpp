#include "passes/marks.h"

#include <algorithm>

#include "passes/simulator.h"

namespace remat {
namespace {

/// By storage: whether it stays in memory by the plan or by necessity.
std::vector<char> keptStorages(const PlanningInput& input, const ir::Plan& plan) {
  const ir::Profile& profile = input.profile;
  std::vector<char> kept(profile.storages.size(), 1);
  for (const int32_t candidate : Simulator(input).candidates()) {
    kept[candidate] = plan.keep[candidate] == ir::kKeep;
  }
  return kept;
}

}  // namespace

std::vector<int32_t> storageRoots(const ir::Profile& profile) {
  std::vector<int32_t> roots(profile.storages.size(), -1);
  for (const ir::NodeProfile& node : profile.nodes) {
    for (const int32_t value : node.outputs) {
      for (const int32_t storage : profile.values[value].storages) {
        if (roots[storage] < 0) {
          roots[storage] = value;
        }
      }
    }
  }
  return roots;
}

std::vector<int32_t> marksOf(const PlanningInput& input, const ir::Plan& plan) {
  const ir::Profile& profile = input.profile;
  const std::vector<char> kept = keptStorages(input, plan);
  const std::vector<int32_t> roots = storageRoots(profile);
  std::vector<char> marked(profile.values.size(), 0);
  for (size_t storage = 0; storage < roots.size(); ++storage) {
    const bool ours = profile.storages[storage].role == ir::StorageRole::kValue ||
                      profile.storages[storage].role == ir::StorageRole::kOutput;
    if (roots[storage] >= 0 && ours && kept[storage] != 0) {
      marked[roots[storage]] = 1;
    }
  }
  std::vector<int32_t> marks;
  const size_t end = std::min<size_t>(profile.values.size(), input.first_internal);
  for (size_t value = 0; value < end; ++value) {
    const ir::ValueProfile& entry = profile.values[value];
    if (marked[value] != 0 || (entry.tensor && entry.producer < 0)) {
      marks.push_back(static_cast<int32_t>(value));
    }
  }
  return marks;
}

std::vector<int32_t> droppedValues(const PlanningInput& input, const ir::Plan& plan) {
  const std::vector<char> recomputed = recomputedStorages(input, plan);
  std::vector<int32_t> values;
  const size_t end = std::min<size_t>(input.profile.values.size(), input.first_internal);
  for (size_t value = 0; value < end; ++value) {
    const std::vector<int32_t>& storages = input.profile.values[value].storages;
    if (std::any_of(storages.begin(), storages.end(), [&](int32_t storage) {
          return recomputed[storage] != 0 && plan.keep[storage] == ir::kRecomputeEachTime;
        })) {
      values.push_back(static_cast<int32_t>(value));
    }
  }
  return values;
}

std::vector<char> recomputedStorages(const PlanningInput& input, const ir::Plan& plan) {
  const ir::Profile& profile = input.profile;
  const std::vector<char> kept = keptStorages(input, plan);
  const std::vector<int32_t> roots = storageRoots(profile);
  const auto isKept = [&](int32_t value) {
    const ir::ValueProfile& entry = profile.values[value];
    if (!entry.tensor || entry.producer < 0 || input.replayable[entry.producer] == 0) {
      return true;
    }
    return std::any_of(entry.storages.begin(), entry.storages.end(), [&](int32_t storage) {
      return kept[storage] != 0 && roots[storage] == value;
    });
  };
  std::vector<char> needed(profile.values.size(), 0);
  for (const ir::SlotProfile& slot : profile.slots) {
    if (slot.value >= 0 && slot.storage >= 0 && kept[slot.storage] == 0) {
      needed[slot.value] = 1;
    }
    if (slot.cast_of < 0) continue;
    const std::vector<int32_t>& storages = profile.values[slot.cast_of].storages;
    if (std::all_of(storages.begin(), storages.end(),
                    [&](int32_t storage) { return kept[storage] == 0; })) {
      needed[slot.cast_of] = 1;
    }
  }
  std::vector<char> recomputed(profile.storages.size(), 0);
  for (auto node = profile.nodes.rbegin(); node != profile.nodes.rend(); ++node) {
    const bool runs = std::any_of(node->outputs.begin(), node->outputs.end(), [&](int32_t value) {
      return needed[value] != 0 && !isKept(value);
    });
    if (!runs) {
      continue;
    }
    for (const int32_t value : node->outputs) {
      for (const int32_t storage : profile.values[value].storages) {
        if (kept[storage] == 0) {
          recomputed[storage] = 1;
        }
      }
    }
    for (const int32_t value : node->inputs) {
      needed[value] = 1;
    }
  }
  return recomputed;
}

}  // namespace remat
