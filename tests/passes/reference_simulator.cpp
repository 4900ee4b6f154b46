#include "tests/passes/reference_simulator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "ir/plan.h"

namespace remat::testing {
namespace {

using ir::Event;
using ir::EventKind;
using ir::StorageRole;

struct Meter {
  int64_t live = 0;
  int64_t peak = 0;
};

/// Bytes that live as long as somebody holds them.
struct Bytes {
  Bytes(Meter& meter, int64_t size) : meter(meter), size(size) {
    meter.live += size;
    meter.peak = std::max(meter.peak, meter.live);
  }
  ~Bytes() { meter.live -= size; }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  Meter& meter;
  int64_t size;
};

using Handle = std::shared_ptr<Bytes>;
using Tensor = std::map<int32_t, Handle>;  ///< by storage

class Reference {
 public:
  Reference(const PlanningInput& input, const std::vector<char>& keep)
      : input_(input), profile_(input.profile) {
    findRoots();
    for (size_t s = 0; s < profile_.storages.size(); ++s) {
      kept_.push_back(profile_.storages[s].role != StorageRole::kValue || !candidate_[s] ||
                      keep[s] == ir::kKeep);
      each_time_.push_back(!kept_.back() && keep[s] == ir::kRecomputeEachTime);
    }
  }

  Evaluation run() {
    for (int32_t node = 0; node < nodeCount(); ++node) forward(node);
    pending_ = [&] {
      std::map<int32_t, int> pending;
      for (int32_t v = 0; v < valueCount(); ++v) pending[v] = need(v);
      return pending;
    }();
    for (const ir::BackwardStep& step : profile_.backward) backward(step);
    Evaluation result;
    result.peak = meter_.peak;
    result.recompute_seconds = seconds_;
    return result;
  }

 private:
  int32_t nodeCount() const { return static_cast<int32_t>(profile_.nodes.size()); }
  int32_t valueCount() const { return static_cast<int32_t>(profile_.values.size()); }

  void findRoots() {
    root_.assign(profile_.storages.size(), -1);
    candidate_.assign(profile_.storages.size(), 1);
    for (int32_t v = 0; v < valueCount(); ++v) {
      for (int32_t s : profile_.values[v].storages) {
        const int32_t producer = profile_.values[v].producer;
        if (root_[s] < 0 || producer < profile_.values[root_[s]].producer) root_[s] = v;
        if (producer < 0 || !input_.replayable[producer]) candidate_[s] = 0;
      }
    }
    for (size_t s = 0; s < profile_.storages.size(); ++s) {
      if (root_[s] < 0 || profile_.storages[s].role != StorageRole::kValue ||
          profile_.storages[s].bytes < input_.minimum_bytes) {
        candidate_[s] = 0;
      }
    }
  }

  bool isFree(int32_t v) const {
    return !profile_.values[v].tensor || profile_.values[v].producer < 0;
  }

  bool marked(int32_t v) const {
    for (int32_t s : profile_.values[v].storages) {
      if (root_[s] == v && kept_[s]) return true;
    }
    return false;
  }

  bool recomputable(int32_t v) const {
    return !isFree(v) && input_.replayable[profile_.values[v].producer] && !marked(v);
  }

  std::set<int32_t> consumers(int32_t v) const {
    std::set<int32_t> result;
    for (int32_t node = 0; node < nodeCount(); ++node) {
      const std::vector<int32_t>& inputs = profile_.nodes[node].inputs;
      if (std::count(inputs.begin(), inputs.end(), v) > 0) result.insert(node);
    }
    return result;
  }

  std::vector<int32_t> recomputableOutputs(int32_t node) const {
    std::vector<int32_t> result;
    for (int32_t v : profile_.nodes[node].outputs) {
      if (recomputable(v)) result.push_back(v);
    }
    return result;
  }

  int32_t horizon(int32_t v) const {
    int32_t result = -1;
    for (int32_t node : consumers(v)) {
      result = std::max(result, node);
      for (int32_t output : recomputableOutputs(node)) result = std::max(result, horizon(output));
    }
    return result;
  }

  /// The value whose cast the slot saved, if nothing but such slots hold the cast; -1.
  int32_t castOf(int32_t slot) const {
    const int32_t storage = profile_.slots[slot].storage;
    const int32_t of = profile_.slots[slot].cast_of;
    if (storage < 0 || of < 0 || profile_.values[of].storages.size() != 1) return -1;
    if (profile_.storages[profile_.values[of].storages[0]].role != StorageRole::kValue) return -1;
    for (const ir::SlotProfile& other : profile_.slots) {
      if (other.storage == storage && other.cast_of != of) return -1;
    }
    for (const ir::ValueProfile& value : profile_.values) {
      if (std::count(value.storages.begin(), value.storages.end(), storage) > 0) return -1;
    }
    return of;
  }

  bool isCast(int32_t storage) const {
    for (size_t slot = 0; slot < profile_.slots.size(); ++slot) {
      const auto id = static_cast<int32_t>(slot);
      if (profile_.slots[slot].storage == storage && castOf(id) >= 0) return true;
    }
    return false;
  }

  /// The value that a slot which is a handle recomputes.
  int32_t valueOf(int32_t slot) const {
    return castOf(slot) >= 0 ? castOf(slot) : profile_.slots[slot].value;
  }

  bool isHandle(int32_t slot) const {
    const ir::SlotProfile& profile = profile_.slots[slot];
    if (castOf(slot) >= 0) return !kept_[profile_.values[castOf(slot)].storages[0]];
    return profile.value >= 0 && profile.storage >= 0 &&
           profile_.storages[profile.storage].role == StorageRole::kValue &&
           !kept_[profile.storage];
  }

  int need(int32_t v) const {
    int result = 0;
    for (int32_t slot : handles_) result += valueOf(slot) == v;
    for (int32_t node : consumers(v)) {
      for (int32_t output : recomputableOutputs(node)) {
        if (need(output) > 0) {
          ++result;
          break;
        }
      }
    }
    return result;
  }

  void apply(const Event& event) {
    const ir::StorageProfile& storage = profile_.storages[event.id];
    if (event.kind == EventKind::kAlloc) {
      recorded_[event.id] = std::make_shared<Bytes>(meter_, storage.bytes);
    } else if (storage.role != StorageRole::kValue && !isCast(event.id)) {
      recorded_.erase(event.id);
    }
  }

  void forward(int32_t node) {
    const ir::NodeProfile& profile = profile_.nodes[node];
    for (const Event& event : profile.events) apply(event);
    for (int32_t v : profile.outputs) {
      for (int32_t s : profile_.values[v].storages) {
        if (recorded_.count(s) > 0 && profile_.storages[s].role == StorageRole::kValue) {
          original_[s] = recorded_[s];
        }
        if (!original_[s].expired()) environment_[v][s] = original_[s].lock();
      }
      if (!isFree(v) && !recomputable(v)) boundaries_[v] = environment_[v];
    }
    for (size_t slot = 0; slot < profile_.slots.size(); ++slot) {
      if (profile_.slots[slot].node != node || profile_.slots[slot].storage < 0) continue;
      const auto id = static_cast<int32_t>(slot);
      if (isHandle(id)) {
        handles_.insert(id);
      } else if (castOf(id) >= 0) {
        slots_[id] = recorded_[profile_.slots[slot].storage];
      } else {
        slots_[id] = original_[profile_.slots[slot].storage].lock();
      }
    }
    // The allocation itself holds nothing once somebody could have taken it.
    for (const Event& event : profile.events) {
      if (profile_.storages[event.id].role == StorageRole::kValue || isCast(event.id)) {
        recorded_.erase(event.id);
      }
    }
    for (int32_t v = 0; v < valueCount(); ++v) {
      const ir::ValueProfile& value = profile_.values[v];
      if (std::max(value.last_use, value.producer) == node) environment_.erase(v);
    }
    dropBoundaries(node);
  }

  void dropBoundaries(int32_t node) {
    for (auto it = boundaries_.begin(); it != boundaries_.end();) {
      bool may_start = false;
      for (int32_t consumer : consumers(it->first)) {
        may_start |= !recomputableOutputs(consumer).empty();
      }
      const bool open = may_start && node < horizon(it->first);
      if (need(it->first) == 0 && !open) {
        it = boundaries_.erase(it);
      } else {
        ++it;
      }
    }
  }

  void collect(int32_t v, std::set<int32_t>& nodes) const {
    if (!recomputable(v) || cache_.count(v) > 0) return;
    const int32_t producer = profile_.values[v].producer;
    if (!nodes.insert(producer).second) return;
    for (int32_t input : profile_.nodes[producer].inputs) collect(input, nodes);
  }

  Handle find(int32_t storage, int32_t node) const {
    for (int32_t input : profile_.nodes[node].inputs) {
      if (cache_.count(input) > 0 && cache_.at(input).count(storage) > 0) {
        return cache_.at(input).at(storage);
      }
      if (boundaries_.count(input) > 0 && boundaries_.at(input).count(storage) > 0) {
        return boundaries_.at(input).at(storage);
      }
    }
    return nullptr;
  }

  /// Uses that a recomputed value is kept for.
  int asked(int32_t v) {
    for (int32_t s : profile_.values[v].storages) {
      if (each_time_[s]) return 0;
    }
    return pending_[v];
  }

  void replay(int32_t node, std::map<int32_t, int>& in_run) {
    const ir::NodeProfile& profile = profile_.nodes[node];
    std::map<int32_t, Handle> made;
    for (const Event& event : profile.events) {
      const ir::StorageProfile& storage = profile_.storages[event.id];
      if (event.kind == EventKind::kAlloc) {
        made[event.id] = std::make_shared<Bytes>(meter_, storage.bytes);
      } else if (storage.role != StorageRole::kValue) {
        made.erase(event.id);
      }
    }
    seconds_ += profile.seconds;
    for (int32_t v : recomputableOutputs(node)) {
      if (cache_.count(v) > 0 || asked(v) + in_run[v] == 0) continue;
      Tensor& tensor = cache_[v];
      for (int32_t s : profile_.values[v].storages) {
        const StorageRole role = profile_.storages[s].role;
        if (role == StorageRole::kExternal || role == StorageRole::kOutput) continue;
        Handle held = made.count(s) > 0 ? made[s] : find(s, node);
        if (held != nullptr) tensor[s] = held;
      }
    }
    made.clear();
    const std::set<int32_t> inputs(profile.inputs.begin(), profile.inputs.end());
    for (int32_t v : inputs) {
      if (!recomputable(v)) continue;
      in_run[v]--;
      if (replayed_.count(node) == 0) pending_[v]--;
      if (asked(v) + in_run[v] == 0) cache_.erase(v);
    }
    replayed_.insert(node);
  }

  void unpack(int32_t slot) {
    const ir::SlotProfile& profile = profile_.slots[slot];
    if (!isHandle(slot)) {
      if (slots_.count(slot) > 0) in_use_.push_back(slots_[slot]);
      return;
    }
    const int32_t value = valueOf(slot);
    if (!recomputable(value)) {
      in_use_.push_back(boundaries_.at(value).at(profile.storage));
      return;
    }
    std::set<int32_t> nodes;
    collect(value, nodes);
    std::map<int32_t, int> in_run;
    in_run[value]++;
    for (int32_t node : nodes) {
      const std::vector<int32_t>& all = profile_.nodes[node].inputs;
      for (int32_t v : std::set<int32_t>(all.begin(), all.end())) in_run[v]++;
    }
    for (int32_t node : nodes) replay(node, in_run);
    if (castOf(slot) >= 0) {
      const int64_t bytes = profile_.storages[profile.storage].bytes;
      in_use_.push_back(std::make_shared<Bytes>(meter_, bytes));
    } else {
      in_use_.push_back(cache_.at(value).at(profile.storage));
    }
    --pending_[value];
    if (asked(value) == 0) cache_.erase(value);
  }

  void backward(const ir::BackwardStep& step) {
    for (const Event& event : step.events) {
      switch (event.kind) {
        case EventKind::kAlloc:
        case EventKind::kFree:
          if (profile_.storages[event.id].role != StorageRole::kValue && !isCast(event.id)) {
            apply(event);
          }
          break;
        case EventKind::kUnpack:
          unpack(event.id);
          break;
        case EventKind::kApplyEnd:
          in_use_.clear();
          break;
        case EventKind::kRelease:
          slots_.erase(event.id);
          handles_.erase(event.id);
          dropBoundaries(nodeCount());
          break;
      }
    }
    in_use_.clear();
  }

  const PlanningInput& input_;
  const ir::Profile& profile_;
  std::vector<int32_t> root_;
  std::vector<char> candidate_;
  std::vector<char> kept_;
  std::vector<char> each_time_;
  Meter meter_;
  double seconds_ = 0;
  std::map<int32_t, Handle> recorded_;                ///< lives as the profile says
  std::map<int32_t, std::weak_ptr<Bytes>> original_;  ///< what the forward allocated
  std::map<int32_t, Tensor> environment_;             ///< by value
  std::map<int32_t, Tensor> boundaries_;              ///< by value
  std::map<int32_t, Handle> slots_;                   ///< kept slots
  std::set<int32_t> handles_;                         ///< live handle slots
  std::map<int32_t, int> pending_;
  std::map<int32_t, Tensor> cache_;
  std::set<int32_t> replayed_;
  std::vector<Handle> in_use_;
};

}  // namespace

Evaluation simulateByReference(const PlanningInput& input, const std::vector<char>& keep) {
  return Reference(input, keep).run();
}

}  // namespace remat::testing
