#include "passes/simulation_walk.h"

#include <algorithm>

#include "ir/plan.h"
#include "llvm/ADT/ArrayRef.h"

namespace remat {

using llvm::ArrayRef;
using Model = SimulationModel;

SimulationWalk::SimulationWalk(const Model& model)
    : model_(model), storage_count_(static_cast<int32_t>(model.storages.size())) {
  const size_t values = model.values.size();
  const size_t nodes = model.nodes.size();
  kept_.assign(model.storages.size(), 1);
  for (const Model::Value& value : model.values) undecided_.push_back(!value.at_hand);
  each_time_.resize(model.storages.size());
  cacheable_.assign(values, 1);
  replayed_.resize(model.storages.size());
  recomputable_.resize(values);
  start_.resize(values);
  need_.resize(values);
  pending_.resize(values);
  in_run_.resize(values);
  horizon_.resize(values);
  needed_outputs_.resize(nodes);
  executed_.resize(nodes);
  cached_.resize(values);
  holders_.resize(model.storages.size());
  held_.resize(model.value_storages.itemCount());
  made_.reserve(16);
  dies_after_.resize(model.storages.size());
  dying_.resize(nodes);
  in_use_.reserve(64);
  stack_.reserve(values + nodes);
  run_.reserve(nodes);
  in_run_node_.resize(nodes);
}

void SimulationWalk::decide(const std::vector<char>& keep) {
  std::copy(undecided_.begin(), undecided_.end(), recomputable_.begin());
  bool each_time = false;
  for (int32_t s : model_.candidates) {
    const Model::Storage& storage = model_.storages[s];
    const char decision = keep[storage.profile_storage];
    kept_[s] = decision == ir::kKeep && !storage.dropped;
    each_time_[s] = !kept_[s] && !storage.internal && decision == ir::kRecomputeEachTime;
    each_time |= each_time_[s] != 0;
    if (kept_[s]) recomputable_[storage.root] = 0;
  }
  for (int32_t s : model_.candidates) {
    replayed_[s] = !kept_[s] && recomputable(model_.storages[s].root);
  }
  if (!each_time && all_cacheable_) return;
  all_cacheable_ = !each_time;
  // A cached view would hold the bytes.
  for (size_t value = 0; value < model_.values.size(); ++value) {
    cacheable_[value] = 1;
    for (int32_t s : model_.value_storages[value]) cacheable_[value] &= !each_time_[s];
  }
}

/// Needs, from the last node to the first: what the handles of a finished forward reach, and how
/// long the frame has to hold a boundary before it can know.
void SimulationWalk::countNeeds() {
  std::fill(need_.begin(), need_.end(), 0);
  std::fill(horizon_.begin(), horizon_.end(), -1);
  std::fill(start_.begin(), start_.end(), 0);
  for (const Model::Slot& slot : model_.slots) {
    if (isHandle(slot)) need_[slot.value]++;
  }
  for (int32_t node = static_cast<int32_t>(model_.nodes.size()) - 1; node >= 0; --node) {
    int32_t horizon = node;
    int32_t needed = 0;
    bool replayable = false;
    for (int32_t output : model_.node_outputs[node]) {
      if (!recomputable(output)) continue;
      replayable = true;
      horizon = std::max(horizon, horizon_[output]);
      needed += need_[output] > 0;
    }
    needed_outputs_[node] = needed;
    for (int32_t input : model_.node_inputs[node]) {
      horizon_[input] = std::max(horizon_[input], horizon);
      start_[input] |= static_cast<char>(replayable);
      need_[input] += needed > 0;
    }
  }
  std::copy(need_.begin(), need_.end(), pending_.begin());
}

void SimulationWalk::countHolders() {
  holders_.assign(model_.storages.size(), 0);
  made_of_.clear();
  free_.clear();
  for (int32_t s = 0; s < storage_count_; ++s) {
    const Model::Storage& storage = model_.storages[s];
    dies_after_[s] = storage.dies_after;
    holders_[s] = (kept_[s] ? storage.slots : storage.opaque_slots) + (storage.escapes ? 1 : 0);
  }
  for (size_t value = 0; value < model_.values.size(); ++value) {
    if (recomputable_[value]) continue;
    if (need_[value] > 0) {
      for (int32_t s : model_.value_storages[value]) holders_[s]++;
    } else if (start_[value]) {
      for (int32_t s : model_.value_storages[value]) {
        dies_after_[s] = std::max(dies_after_[s], horizon_[value]);
      }
    }
  }
  std::fill(dying_.begin(), dying_.end(), 0);
  for (int32_t s = 0; s < storage_count_; ++s) {
    if (holders_[s] == 0) dying_[dies_after_[s]] += model_.storages[s].bytes;
  }
}

template <bool kTrace>
void SimulationWalk::raisePeak(int64_t bytes) {
  if (bytes > result_.peak) {
    result_.peak = bytes;
    result_.peak_instant = instant_;
  }
  result_.excess += std::max<int64_t>(0, bytes - limits_.soft_peak);
  if (kTrace) {
    int64_t& peak = timeline_->peak_at[instant_];
    peak = std::max(peak, bytes);
  }
}

template <bool kTrace>
void SimulationWalk::drop(int32_t instance) {
  if (--holders_[instance] > 0) return;
  const bool again = instance >= storage_count_;
  const Model::Storage& storage =
      model_.storages[again ? made_of_[instance - storage_count_] : instance];
  if (again) free_.push_back(instance);
  live_ -= storage.bytes;
  if (kTrace) {
    (again ? timeline_->replay_last : timeline_->last_alive)[storage.profile_storage] = instant_;
  }
}

template <bool kTrace>
bool SimulationWalk::runForward() {
  for (size_t node = 0; node < model_.nodes.size(); ++node) {
    instant_ = static_cast<int32_t>(node);
    const Model::Bulk& bulk = model_.nodes[node].forward;
    raisePeak<kTrace>(live_ + bulk.peak);
    live_ += bulk.delta - dying_[node];
  }
  return result_.peak <= limits_.peak;
}

template <bool kTrace>
void SimulationWalk::dropCached(int32_t value) {
  cached_[value] = 0;
  const int32_t* held = held_.data() + model_.value_storages.offset(value);
  const auto count = static_cast<int32_t>(model_.value_storages[value].size());
  for (int32_t i = 0; i < count; ++i) {
    if (held[i] >= 0) drop<kTrace>(held[i]);
  }
}

/// A new allocation of `storage`, held once.
int32_t SimulationWalk::allocate(int32_t storage) {
  live_ += model_.storages[storage].bytes;
  if (free_.empty()) {
    holders_.push_back(1);
    made_of_.push_back(storage);
    return static_cast<int32_t>(holders_.size()) - 1;
  }
  const int32_t instance = free_.back();
  free_.pop_back();
  holders_[instance] = 1;
  made_of_[instance - storage_count_] = storage;
  return instance;
}

/// The allocation of `storage` that a result of `node` holds: its own, or that of an input which it
/// is a view of; -1 where nothing shows it.
int32_t SimulationWalk::instanceFor(int32_t node, int32_t storage) const {
  if (!replayed_[storage]) return storage;
  const ArrayRef<int32_t> allocs = model_.node_allocs[node];
  for (size_t i = 0; i < allocs.size(); ++i) {
    if (allocs[i] == storage) return made_[i];
  }
  for (int32_t input : model_.node_inputs[node]) {
    if (!cached_[input]) continue;
    const int32_t held = heldBy(input, storage);
    if (held >= 0) return held;
  }
  return -1;
}

/// The allocation of `storage` that the cached `value` holds; -1: none.
int32_t SimulationWalk::heldBy(int32_t value, int32_t storage) const {
  const ArrayRef<int32_t> storages = model_.value_storages[value];
  const int32_t* held = held_.data() + model_.value_storages.offset(value);
  for (size_t i = 0; i < storages.size(); ++i) {
    if (storages[i] == storage) return held[i];
  }
  return -1;
}

/// Outputs that nobody waits for are gone at once, and so are the op's internals and scratch.
template <bool kTrace>
void SimulationWalk::replay(int32_t node) {
  const Model::Node& executed = model_.nodes[node];
  raisePeak<kTrace>(live_ + executed.replay_peak);
  result_.recompute_seconds += executed.seconds;
  made_.clear();
  for (int32_t s : model_.node_allocs[node]) {
    made_.push_back(allocate(s));
    if (kTrace) {
      int32_t& first = timeline_->replay_first[model_.storages[s].profile_storage];
      if (first < 0) first = instant_;
    }
  }
  for (int32_t output : model_.node_outputs[node]) {
    if (!recomputable(output) || cached_[output] || asked(output) == 0) continue;
    const ArrayRef<int32_t> storages = model_.value_storages[output];
    int32_t* held = held_.data() + model_.value_storages.offset(output);
    for (size_t i = 0; i < storages.size(); ++i) {
      held[i] = instanceFor(node, storages[i]);
      if (held[i] >= 0) holders_[held[i]]++;
    }
    cached_[output] = 1;
  }
  for (int32_t instance : made_) drop<kTrace>(instance);
  for (int32_t input : model_.node_inputs[node]) {
    if (!recomputable(input)) continue;
    in_run_[input]--;
    if (!executed_[node] && pending_[input] > 0) pending_[input]--;
    if (cached_[input] && asked(input) == 0) dropCached<kTrace>(input);
  }
  executed_[node] = 1;
}

template <bool kTrace>
void SimulationWalk::materialise(int32_t value) {
  run_.clear();
  stack_.clear();
  auto ask = [&](int32_t wanted) {
    in_run_[wanted]++;
    const int32_t producer = model_.values[wanted].producer;
    if (cached_[wanted] || in_run_node_[producer]) return;
    in_run_node_[producer] = 1;
    stack_.push_back(producer);
  };
  ask(value);
  while (!stack_.empty()) {
    const int32_t node = stack_.back();
    stack_.pop_back();
    run_.push_back(node);
    for (int32_t input : model_.node_inputs[node]) {
      if (recomputable(input)) ask(input);
    }
  }
  std::sort(run_.begin(), run_.end());
  for (int32_t node : run_) {
    in_run_node_[node] = 0;
    replay<kTrace>(node);
  }
  in_run_[value]--;
}

template <bool kTrace>
void SimulationWalk::unpack(const Model::Slot& slot) {
  if (!isHandle(slot)) {
    if (!slot.outlives_release) return;
    holders_[slot.storage]++;
    in_use_.push_back(slot.storage);
    return;
  }
  if (!recomputable(slot.value)) {
    holders_[slot.storage]++;
    in_use_.push_back(slot.storage);
    return;
  }
  if (!cached_[slot.value]) materialise<kTrace>(slot.value);
  const int32_t held = replayed_[slot.storage] ? heldBy(slot.value, slot.storage) : slot.storage;
  holders_[held]++;
  in_use_.push_back(held);
  if (pending_[slot.value] > 0) pending_[slot.value]--;
  if (cached_[slot.value] && asked(slot.value) == 0) dropCached<kTrace>(slot.value);
}

/// One handle less on a value; what nobody needs any more lets go of its inputs, boundaries of
/// their bytes.
template <bool kTrace>
void SimulationWalk::dropNeed(int32_t value) {
  stack_.clear();
  stack_.push_back(value);
  while (!stack_.empty()) {
    const int32_t dropped = stack_.back();
    stack_.pop_back();
    if (--need_[dropped] > 0) continue;
    if (!recomputable(dropped)) {
      for (int32_t s : model_.value_storages[dropped]) drop<kTrace>(s);
      continue;
    }
    const int32_t producer = model_.values[dropped].producer;
    if (--needed_outputs_[producer] > 0) continue;
    const ArrayRef<int32_t> inputs = model_.node_inputs[producer];
    stack_.insert(stack_.end(), inputs.begin(), inputs.end());
  }
}

template <bool kTrace>
bool SimulationWalk::runBackward() {
  const auto forward_instants = static_cast<int32_t>(model_.nodes.size());
  for (size_t i = 0; i < model_.backward.size(); ++i) {
    const Model::BackwardOp& op = model_.backward[i];
    instant_ = forward_instants + static_cast<int32_t>(i);
    raisePeak<kTrace>(live_ + op.before.peak);
    live_ += op.before.delta;
    switch (op.kind) {
      case Model::OpKind::kNone:
        break;
      case Model::OpKind::kUnpack:
        unpack<kTrace>(model_.slots[op.slot]);
        if (result_.peak > limits_.peak) return false;
        break;
      case Model::OpKind::kApplyEnd:
        for (int32_t held : in_use_) drop<kTrace>(held);
        in_use_.clear();
        break;
      case Model::OpKind::kRelease: {
        const Model::Slot& slot = model_.slots[op.slot];
        if (isHandle(slot)) {
          dropNeed<kTrace>(slot.value);
        } else {
          drop<kTrace>(slot.storage);
        }
        break;
      }
    }
  }
  return result_.peak <= limits_.peak;
}

Evaluation SimulationWalk::run(const std::vector<char>& keep, const EvaluationLimits& limits,
                               Timeline* timeline) {
  limits_ = limits;
  timeline_ = timeline;
  result_ = Evaluation();
  live_ = 0;
  instant_ = 0;
  decide(keep);
  countNeeds();
  double needed_seconds = 0;
  for (size_t node = 0; node < model_.nodes.size(); ++node) {
    if (needed_outputs_[node] > 0) needed_seconds += model_.nodes[node].seconds;
  }
  if (needed_seconds > limits.recompute_seconds) {
    result_.recompute_seconds = needed_seconds;
    result_.aborted = true;
    return result_;
  }
  if (limits.seconds_per_byte > 0) {
    const double room = (limits.recompute_seconds - needed_seconds) / limits.seconds_per_byte;
    const double most = static_cast<double>(limits.soft_peak) + room;
    if (most < static_cast<double>(limits.peak)) limits_.peak = static_cast<int64_t>(most);
  }
  countHolders();
  std::fill(executed_.begin(), executed_.end(), 0);
  std::fill(cached_.begin(), cached_.end(), 0);
  std::fill(in_run_.begin(), in_run_.end(), 0);
  in_use_.clear();
  if (timeline == nullptr) {
    result_.aborted = !runForward<false>() || !runBackward<false>();
    return result_;
  }
  for (int32_t s = 0; s < storage_count_; ++s) {
    const int32_t id = model_.storages[s].profile_storage;
    timeline->persists[id] = holders_[s] > 0;
    timeline->last_alive[id] =
        holders_[s] > 0 ? static_cast<int32_t>(timeline->peak_at.size()) - 1 : dies_after_[s];
  }
  runForward<true>();
  runBackward<true>();
  return result_;
}

}  // namespace remat
