#include "passes/group_replay.h"

#include <algorithm>

namespace remat {

using llvm::ArrayRef;
using Model = SimulationModel;
using Point = MemoryCurve::Point;

ReplayState::ReplayState(const Model& model)
    : kept(model.storages.size(), 1),
      replayed(model.storages.size()),
      each_time(model.storages.size()),
      recomputable(model.values.size()),
      cacheable(model.values.size(), 1),
      needs(model.values.size()) {}

ArrayRef<MemoryCurve::Step> GroupReplay::stepsOf(size_t unpack) const {
  const size_t begin = unpacks[unpack].first_step;
  const size_t end = unpack + 1 < unpacks.size() ? unpacks[unpack + 1].first_step : steps.size();
  return {steps.data() + begin, end - begin};
}

void GroupReplay::clear() {
  ticks = 0;
  unpacks.clear();
  steps.clear();
  changes.clear();
  holds.clear();
}

GroupReplayer::GroupReplayer(const Model& model, const SimulationIndex& index,
                             const ReplayState& state)
    : model_(model),
      index_(index),
      state_(state),
      storage_count_(static_cast<int32_t>(model.storages.size())),
      pending_(model.values.size()),
      in_run_(model.values.size()),
      cached_(model.values.size()),
      executed_(model.nodes.size()),
      in_run_node_(model.nodes.size()),
      held_(model.value_storages.itemCount()),
      holders_(model.storages.size()),
      hold_of_(model.storages.size(), -1) {}

/// Where what happens now is seen: after the last replay, if this instant has any.
Point GroupReplayer::now() const {
  const size_t first = result_->unpacks.back().first_step;
  const auto steps = static_cast<int32_t>(result_->steps.size() - first);
  return {instant_,
          steps == 0 || instant_ != result_->unpacks.back().instant ? Point::kEnd : steps - 1};
}

void GroupReplayer::changeBytes(int64_t bytes) {
  const Point point = now();
  if (point.step == Point::kEnd) {
    result_->changes.push_back({point, bytes});
  } else {
    result_->steps.back().delta += bytes;
  }
}

void GroupReplayer::hold(int32_t instance) {
  holders_[instance]++;
  if (instance >= storage_count_ || hold_of_[instance] >= 0) return;
  hold_of_[instance] = static_cast<int32_t>(result_->holds.size());
  result_->holds.push_back({instance, {}});
}

void GroupReplayer::drop(int32_t instance) {
  if (--holders_[instance] > 0) return;
  if (instance < storage_count_) {
    result_->holds[hold_of_[instance]].until = now();
    return;
  }
  const Model::Storage& storage = model_.storages[made_of_[instance - storage_count_]];
  free_.push_back(instance);
  changeBytes(-storage.bytes);
  if (timeline_ != nullptr) timeline_->replay_last[storage.profile_storage] = instant_;
}

void GroupReplayer::dropCached(int32_t value) {
  cached_[value] = 0;
  const int32_t* held = held_.data() + model_.value_storages.offset(value);
  const auto count = static_cast<int32_t>(model_.value_storages[value].size());
  for (int32_t i = 0; i < count; ++i) {
    if (held[i] >= 0) drop(held[i]);
  }
}

/// A new allocation of `storage`, held once.
int32_t GroupReplayer::allocate(int32_t storage) {
  const Model::Storage& made = model_.storages[storage];
  changeBytes(made.bytes);
  if (timeline_ != nullptr) {
    int32_t& first = timeline_->replay_first[made.profile_storage];
    if (first < 0) first = instant_;
  }
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
int32_t GroupReplayer::instanceFor(int32_t node, int32_t storage) const {
  if (!state_.replayed[storage]) return storage;
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
int32_t GroupReplayer::heldBy(int32_t value, int32_t storage) const {
  const ArrayRef<int32_t> storages = model_.value_storages[value];
  const int32_t* held = held_.data() + model_.value_storages.offset(value);
  for (size_t i = 0; i < storages.size(); ++i) {
    if (storages[i] == storage) return held[i];
  }
  return -1;
}

/// Outputs that nobody waits for are gone at once, and so are the op's internals and scratch.
void GroupReplayer::replay(int32_t node) {
  const Model::Node& executed = model_.nodes[node];
  result_->steps.push_back({executed.replay_peak, 0});
  result_->ticks += executed.ticks;
  made_.clear();
  for (int32_t s : model_.node_allocs[node]) made_.push_back(allocate(s));
  for (int32_t output : model_.node_outputs[node]) {
    if (!state_.recomputable[output] || cached_[output] || asked(output) == 0) continue;
    const ArrayRef<int32_t> storages = model_.value_storages[output];
    int32_t* held = held_.data() + model_.value_storages.offset(output);
    for (size_t i = 0; i < storages.size(); ++i) {
      held[i] = instanceFor(node, storages[i]);
      if (held[i] >= 0) hold(held[i]);
    }
    cached_[output] = 1;
  }
  for (int32_t instance : made_) drop(instance);
  for (int32_t input : model_.node_inputs[node]) {
    if (!state_.recomputable[input]) continue;
    in_run_[input]--;
    if (!executed_[node] && pending_[input] > 0) pending_[input]--;
    if (cached_[input] && asked(input) == 0) dropCached(input);
  }
  executed_[node] = 1;
}

void GroupReplayer::materialise(int32_t value) {
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
      if (state_.recomputable[input]) ask(input);
    }
  }
  std::sort(run_.begin(), run_.end());
  for (int32_t node : run_) {
    in_run_node_[node] = 0;
    replay(node);
  }
  in_run_[value]--;
}

void GroupReplayer::unpack(const Model::Slot& slot) {
  if (!cached_[slot.value]) materialise(slot.value);
  if (slot.cast >= 0) {
    result_->steps.push_back({model_.storages[slot.cast].bytes, 0});
    in_use_.push_back(allocate(slot.cast));
  } else {
    const int32_t held =
        state_.replayed[slot.storage] ? heldBy(slot.value, slot.storage) : slot.storage;
    hold(held);
    in_use_.push_back(held);
  }
  if (pending_[slot.value] > 0) pending_[slot.value]--;
  if (cached_[slot.value] && asked(slot.value) == 0) dropCached(slot.value);
}

void GroupReplayer::endUses() {
  instant_ = in_use_until_;
  for (int32_t held : in_use_) drop(held);
  in_use_.clear();
}

void GroupReplayer::run(ArrayRef<int32_t> values, ArrayRef<int32_t> nodes, GroupReplay& result,
                        Timeline* timeline) {
  result.clear();
  result_ = &result;
  timeline_ = timeline;
  events_.clear();
  for (int32_t value : values) {
    for (int32_t slot : index_.value_slots[value]) {
      if (!state_.isHandle(model_.slots[slot])) continue;
      for (int32_t instant : index_.slot_unpacks[slot]) events_.push_back({instant, slot});
    }
  }
  if (events_.empty()) return;
  std::sort(events_.begin(), events_.end(),
            [](const Event& a, const Event& b) { return a.instant < b.instant; });
  for (int32_t value : values) {
    pending_[value] = state_.needs[value];
    cached_[value] = 0;
  }
  for (int32_t node : nodes) executed_[node] = 0;
  holders_.resize(storage_count_);
  made_of_.clear();
  free_.clear();
  for (const Event& event : events_) {
    if (!in_use_.empty() && in_use_until_ < event.instant) endUses();
    instant_ = event.instant;
    in_use_until_ = index_.use_end[event.instant - index_.forward];
    result.unpacks.push_back({instant_, static_cast<int32_t>(result.steps.size())});
    unpack(model_.slots[event.slot]);
  }
  endUses();
  for (GroupReplay::Hold& held : result.holds) {
    hold_of_[held.storage] = -1;
    if (holders_[held.storage] > 0) held.until = {index_.end, Point::kEnd};
    holders_[held.storage] = 0;
  }
}

}  // namespace remat
