#include "passes/step_report.h"

#include <algorithm>
#include <map>

#include "llvm/ADT/StringRef.h"
#include "passes/marks.h"
#include "passes/recorded_lives.h"
#include "passes/simulator.h"

namespace remat {
namespace {

constexpr size_t kMostPoints = 1500;
constexpr size_t kMostModules = 10;

/// The first `depth` names of a module path.
std::string prefixOf(llvm::StringRef path, size_t depth) {
  size_t end = 0;
  for (size_t i = 0; i < depth && end != llvm::StringRef::npos; ++i) {
    end = path.find('.', i == 0 ? 0 : end + 1);
  }
  return path.substr(0, end).str();
}

std::vector<StepMemory::Point> thinned(const std::vector<int64_t>& bytes) {
  std::vector<StepMemory::Point> points;
  const size_t stretch = (bytes.size() + kMostPoints - 1) / kMostPoints;
  for (size_t begin = 0; begin < bytes.size(); begin += stretch) {
    const auto end = bytes.begin() + static_cast<int64_t>(std::min(begin + stretch, bytes.size()));
    const auto highest = std::max_element(bytes.begin() + static_cast<int64_t>(begin), end);
    points.push_back({static_cast<int32_t>(highest - bytes.begin()), *highest});
  }
  return points;
}

/// Finds out what is alive at one instant.
class Parts {
 public:
  Parts(const PlanningInput& input, const Timeline& timeline, int32_t instant)
      : profile_(input.profile), roots_(storageRoots(input.profile)) {
    const auto nodes = static_cast<int32_t>(profile_.nodes.size());
    const bool backward = instant >= timeline.forward_instants;
    const int32_t position = timeline.profile_index[instant] + (backward ? nodes : 0);
    const std::vector<Life> lives = recordedLives(profile_);
    std::vector<char> cast(profile_.storages.size(), 0);
    for (const ir::SlotProfile& slot : profile_.slots) {
      if (slot.cast_of >= 0 && slot.storage >= 0) cast[slot.storage] = 1;
    }
    for (size_t s = 0; s < profile_.storages.size(); ++s) {
      const ir::StorageRole role = profile_.storages[s].role;
      const Life& life = lives[s];
      const bool began = life.from >= 0 && life.from < position;
      if (cast[s] != 0) {
        const bool held = timeline.persists[s] != 0 && timeline.last_alive[s] >= instant;
        if (held && began) others_["casts for operators under autocast"] += bytes(s);
      } else if (role == ir::StorageRole::kValue) {
        const int32_t first = timeline.first_alive[s];
        if (first >= 0 && first <= instant && timeline.last_alive[s] >= instant) kept_.push_back(s);
      } else if (began && (life.until < 0 || life.until > position)) {
        others_[nameOf(role, life.from >= nodes)] += bytes(s);
      }
    }
  }

  /// What is kept summed up by module, as deep as few rows show.
  std::vector<StepMemory::Part> of(int64_t peak) const {
    size_t depth = 1;
    while (depth < kDeepest && groups(depth + 1).size() <= kMostModules) ++depth;
    std::vector<StepMemory::Part> parts;
    for (const auto& [name, bytes] : groups(depth)) parts.push_back({name, bytes});
    const auto larger = [](const auto& a, const auto& b) { return a.bytes > b.bytes; };
    std::stable_sort(parts.begin(), parts.end(), larger);
    if (parts.size() > kMostModules) {
      int64_t rest = 0;
      for (size_t i = kMostModules - 1; i < parts.size(); ++i) rest += parts[i].bytes;
      parts.resize(kMostModules - 1);
      parts.push_back({"values of other modules", rest});
    }
    for (const auto& [name, bytes] : others_) parts.push_back({name, bytes});
    std::stable_sort(parts.begin(), parts.end(), larger);
    int64_t known = 0;
    for (const StepMemory::Part& part : parts) known += part.bytes;
    parts.push_back(
        {"what is made at that moment: recomputed values, results, scratch", peak - known});
    return parts;
  }

 private:
  static constexpr size_t kDeepest = 5;

  int64_t bytes(size_t storage) const { return profile_.storages[storage].bytes; }

  static const char* nameOf(ir::StorageRole role, bool in_backward) {
    if (role == ir::StorageRole::kOutput) return "the model's output";
    if (role == ir::StorageRole::kInternal) return "saved inside of operators";
    return in_backward ? "gradients" : "what operators hold for themselves";
  }

  std::map<std::string, int64_t> groups(size_t depth) const {
    std::map<std::string, int64_t> groups;
    for (const size_t storage : kept_) {
      const int32_t producer = roots_[storage] < 0 ? -1 : profile_.values[roots_[storage]].producer;
      const std::string module =
          producer < 0 ? "" : prefixOf(profile_.nodes[producer].module_path, depth);
      groups["values of " + (module.empty() ? "the model itself" : module)] += bytes(storage);
    }
    return groups;
  }

  const ir::Profile& profile_;
  std::vector<int32_t> roots_;
  std::vector<size_t> kept_;
  std::map<std::string, int64_t> others_;
};

}  // namespace

StepMemory stepMemory(const PlanningInput& input, const std::vector<char>& keep) {
  const ir::Profile& profile = input.profile;
  Simulator simulator(input);
  const Timeline timeline = simulator.trace(keep);
  StepMemory memory;
  memory.forward_instants = timeline.forward_instants;
  memory.instants = static_cast<int32_t>(timeline.peak_at.size());
  memory.points = thinned(timeline.peak_at);
  memory.peak = {timeline.evaluation.peak_instant, timeline.evaluation.peak};
  if (timeline.peak_at.empty()) return memory;
  const int32_t index = timeline.profile_index[memory.peak.instant];
  const int32_t node = memory.peaksInBackward() ? profile.backward[index].node : index;
  if (node >= 0) {
    memory.op = profile.nodes[node].op;
    memory.module_path = profile.nodes[node].module_path;
    memory.source = profile.nodes[node].source;
  }
  memory.parts = Parts(input, timeline, memory.peak.instant).of(memory.peak.bytes);
  return memory;
}

std::vector<DecidedValue> decidedValues(const PlanningInput& input, const ir::Plan& plan) {
  const ir::Profile& profile = input.profile;
  const std::vector<int32_t> roots = storageRoots(profile);
  const std::vector<char> recomputed = recomputedStorages(input, plan);
  Simulator simulator(input);
  const Timeline timeline = simulator.trace(plan.keep);
  std::vector<std::pair<int32_t, size_t>> order;  // node, storage
  for (size_t storage = 0; storage < roots.size(); ++storage) {
    const bool decided = recomputed[storage] != 0 || timeline.persists[storage] != 0;
    if (roots[storage] < 0 || !decided) continue;
    order.emplace_back(profile.values[roots[storage]].producer, storage);
  }
  std::sort(order.begin(), order.end());
  std::vector<DecidedValue> values;
  for (const auto& [producer, storage] : order) {
    const ir::NodeProfile& node = profile.nodes[producer];
    const bool internal = roots[storage] >= input.first_internal;
    values.push_back({profile.values[roots[storage]].name, (internal ? "inside of " : "") + node.op,
                      node.module_path, node.source, profile.storages[storage].bytes, node.seconds,
                      recomputed[storage] != 0});
  }
  return values;
}

}  // namespace remat
