#include "passes/plan_state.h"

#include <algorithm>
#include <cstring>

#include "ir/plan.h"

namespace remat {

using Model = SimulationModel;

namespace {

/// Decisions compared at once.
constexpr size_t kCompared = 64;
/// What a question costs, in units of work.
constexpr int64_t kMeasuring = 20;
constexpr int64_t kInstantsAtOnce = 128;

}  // namespace

PlanState::PlanState(const Model& model)
    : model_(model),
      index_(model),
      state_(model),
      replayer_(model_, index_, state_),
      curve_(model),
      decisions_(model.profile_to_model.size(), ir::kKeep),
      value_needs_(model.values.size()),
      node_needs_(model.nodes.size()),
      group_of_(model.values.size(), -1),
      ends_(model.storages.size(), never()),
      holds_(model.storages.size()),
      values_(model.values.size()),
      loose_(model.values.size()),
      nodes_(model.nodes.size()),
      boundaries_(model.values.size()),
      storages_(model.storages.size()) {
  for (size_t node = 0; node < model.nodes.size(); ++node) {
    node_needs_[node].horizon = static_cast<int32_t>(node);
  }
  for (const Model::Value& value : model.values) undecided_.push_back(!value.at_hand);
  for (int32_t s : model.candidates) {
    if (model.storages[s].dropped) decide(s, ir::kRecompute);
  }
  for (size_t value = 0; value < model.values.size(); ++value)
    values_.add(static_cast<int32_t>(value));
  for (size_t s = 0; s < model.storages.size(); ++s) storages_.add(static_cast<int32_t>(s));
  update();
}

void PlanState::change(const std::vector<char>& keep) {
  bool changed = false;
  const size_t size = decisions_.size();
  for (size_t begin = 0; begin < size; begin += kCompared) {
    const size_t count = std::min(kCompared, size - begin);
    if (std::memcmp(keep.data() + begin, decisions_.data() + begin, count) == 0) continue;
    for (size_t id = begin; id < begin + count; ++id) {
      if (keep[id] == decisions_[id]) continue;
      decisions_[id] = keep[id];
      const int32_t s = model_.profile_to_model[id];
      if (s < 0 || !model_.storages[s].candidate) continue;
      decide(s, keep[id]);
      changed = true;
    }
  }
  if (changed) update();
}

void PlanState::decide(int32_t storage, char decision) {
  const Model::Storage& decided = model_.storages[storage];
  const bool kept = decision == ir::kKeep && !decided.dropped;
  const bool each_time = !kept && !decided.internal && decision == ir::kRecomputeEachTime;
  if (state_.kept[storage] == kept && state_.each_time[storage] == each_time) return;
  state_.kept[storage] = kept;
  state_.each_time[storage] = each_time;
  storages_.add(storage);
  values_.add(decided.root);
  for (int32_t value : index_.storage_values[storage]) values_.add(value);
  for (int32_t slot : index_.storage_slots[storage]) {
    if (model_.slots[slot].value >= 0) values_.add(model_.slots[slot].value);
    if (model_.slots[slot].cast >= 0) storages_.add(model_.slots[slot].cast);
  }
}

/// Takes a group's replays off the curve.
void PlanState::dissolve(int32_t id) {
  Group& group = groups_[id];
  const GroupReplay& replay = group.replay;
  for (int32_t value : group.values) {
    group_of_[value] = -1;
    loose_.add(value);
  }
  for (int32_t node : group.nodes) nodes_.add(node);
  // A storage's end may lie between two of the group's steps.
  for (const GroupReplay::Hold& hold : replay.holds) {
    std::vector<Hold>& holds = holds_[hold.storage];
    holds.erase(std::find_if(holds.begin(), holds.end(),
                             [&](const Hold& other) { return other.group == id; }));
    moveEnd(hold.storage, never());
    storages_.add(hold.storage);
  }
  for (const GroupReplay::Unpack& unpack : replay.unpacks) curve_.setSteps(unpack.instant, {});
  for (const GroupReplay::Change& change : replay.changes) curve_.add(change.point, -change.bytes);
  ticks_ -= replay.ticks;
  group.values.clear();
  free_groups_.push_back(id);
}

/// A value that became recomputable joins the groups around it.
void PlanState::touchNeighbours(int32_t value) {
  auto leave = [&](llvm::ArrayRef<int32_t> values) {
    for (int32_t neighbour : values) {
      if (group_of_[neighbour] >= 0) dissolve(group_of_[neighbour]);
    }
  };
  const int32_t producer = model_.values[value].producer;
  nodes_.add(producer);
  loose_.add(value);
  leave(model_.node_outputs[producer]);
  leave(model_.node_inputs[producer]);
  for (int32_t consumer : index_.value_consumers[value]) leave(model_.node_outputs[consumer]);
}

/// Everything connected with `value`: a replay of a node makes all its outputs and starts from all
/// its inputs.
void PlanState::gather(int32_t value, Group& group) {
  const auto id = static_cast<int32_t>(&group - groups_.data());
  auto join = [&](int32_t member) {
    if (!state_.recomputable[member] || group_of_[member] >= 0) return;
    group_of_[member] = id;
    group.values.push_back(member);
  };
  group.values.clear();
  group.nodes.clear();
  join(value);
  for (size_t i = 0; i < group.values.size(); ++i) {
    const int32_t member = group.values[i];
    const int32_t producer = model_.values[member].producer;
    for (int32_t sibling : model_.node_outputs[producer]) join(sibling);
    for (int32_t input : model_.node_inputs[producer]) join(input);
    for (int32_t consumer : index_.value_consumers[member]) {
      for (int32_t output : model_.node_outputs[consumer]) join(output);
    }
    group.nodes.push_back(producer);
  }
  std::sort(group.nodes.begin(), group.nodes.end());
  group.nodes.erase(std::unique(group.nodes.begin(), group.nodes.end()), group.nodes.end());
}

void PlanState::regroup() {
  size_t next = 0;
  while (next < values_.ids.size()) {
    const int32_t value = values_.ids[next++];
    bool recomputable = undecided_[value] != 0;
    for (int32_t s : model_.value_roots[value]) recomputable &= !state_.kept[s];
    state_.recomputable[value] = recomputable;
    for (int32_t s : model_.value_roots[value]) {
      const bool replayed = recomputable && !state_.kept[s];
      if (state_.replayed[s] == replayed) continue;
      state_.replayed[s] = replayed;
      storages_.add(s);
      for (int32_t holder : index_.storage_values[s]) values_.add(holder);
    }
    // A cached view would hold the bytes.
    state_.cacheable[value] = 1;
    for (int32_t s : model_.value_storages[value]) {
      storages_.add(s);
      if (state_.each_time[s]) state_.cacheable[value] = 0;
    }
  }
  for (int32_t value : values_.ids) touchNeighbours(value);
  for (int32_t value : loose_.ids) {
    if (!state_.recomputable[value] || group_of_[value] >= 0) continue;
    if (free_groups_.empty()) {
      free_groups_.push_back(static_cast<int32_t>(groups_.size()));
      groups_.emplace_back();
    }
    const int32_t id = free_groups_.back();
    free_groups_.pop_back();
    new_groups_.push_back(id);
    gather(value, groups_[id]);
    for (int32_t node : groups_[id].nodes) nodes_.add(node);
  }
}

void PlanState::updateValue(int32_t value) {
  Need need;
  int32_t count = 0;
  for (int32_t slot : index_.value_slots[value]) {
    if (!state_.isHandle(model_.slots[slot])) continue;
    count++;
    need.until = std::max(need.until, index_.slot_release[slot]);
  }
  for (int32_t consumer : index_.value_consumers[value]) {
    const Need& reader = node_needs_[consumer];
    count += reader.until >= 0;
    need.until = std::max(need.until, reader.until);
    need.horizon = std::max(need.horizon, reader.horizon);
    need.replayable |= reader.replayable;
  }
  state_.needs[value] = count;
  work_ += 1 + static_cast<int64_t>(index_.value_consumers[value].size());
  if (need == value_needs_[value]) return;
  value_needs_[value] = need;
  for (int32_t s : model_.value_storages[value]) storages_.add(s);
}

void PlanState::updateNode(int32_t node) {
  Need need;
  need.horizon = node;
  for (int32_t output : model_.node_outputs[node]) {
    if (!state_.recomputable[output]) continue;
    const Need& reader = value_needs_[output];
    need.replayable = 1;
    need.until = std::max(need.until, reader.until);
    need.horizon = std::max(need.horizon, reader.horizon);
  }
  node_needs_[node] = need;
}

/// From the last node to the first: consumers before what they read.
void PlanState::updateNeeds() {
  std::sort(nodes_.ids.begin(), nodes_.ids.end(), [](int32_t a, int32_t b) { return a > b; });
  for (int32_t node : nodes_.ids) {
    for (int32_t output : model_.node_outputs[node]) updateValue(output);
    updateNode(node);
    for (int32_t input : model_.node_inputs[node]) boundaries_.add(input);
  }
  for (int32_t value : boundaries_.ids) {
    if (!state_.recomputable[value]) updateValue(value);
  }
}

void PlanState::replayGroups() {
  for (int32_t id : new_groups_) {
    Group& group = groups_[id];
    GroupReplay& replay = group.replay;
    replayer_.run(group.values, group.nodes, replay, nullptr);
    for (size_t i = 0; i < replay.unpacks.size(); ++i) {
      curve_.setSteps(replay.unpacks[i].instant, replay.stepsOf(i));
    }
    for (const GroupReplay::Change& change : replay.changes) curve_.add(change.point, change.bytes);
    for (const GroupReplay::Hold& hold : replay.holds) {
      holds_[hold.storage].push_back({id, hold.until});
      storages_.add(hold.storage);
    }
    ticks_ += replay.ticks;
    work_ += static_cast<int64_t>(group.values.size() + replay.steps.size());
  }
}

/// When the forward's allocation of a storage is freed, and whether that is in the backward.
std::pair<MemoryCurve::Point, bool> PlanState::endOf(int32_t s) const {
  const Model::Storage& storage = model_.storages[s];
  if (storage.escapes) return {never(), true};
  int32_t forward = storage.dies_after;
  int32_t backward = -1;
  bool persists = false;
  for (int32_t id : index_.storage_slots[s]) {
    const Model::Slot& slot = model_.slots[id];
    if (!state_.isHandle(slot)) {
      if (slot.cast >= 0 && slot.cast != s) continue;
      persists = true;
      backward = std::max(backward, index_.slot_release[id]);
      if (slot.outlives_release) backward = std::max(backward, index_.slot_use_end[id]);
    } else if (slot.cast < 0 && !state_.recomputable[slot.value]) {
      backward = std::max(backward, index_.slot_use_end[id]);
    }
  }
  for (int32_t value : index_.storage_values[s]) {
    if (state_.recomputable[value]) continue;
    const Need& need = value_needs_[value];
    persists |= need.until >= 0;
    backward = std::max(backward, need.until);
    if (need.until < 0 && need.replayable != 0) forward = std::max(forward, need.horizon);
  }
  if (!persists) return {{forward, Point::kEnd}, false};
  Point end{backward, Point::kEnd};
  for (const Hold& hold : holds_[s]) end = std::max(end, hold.until);
  return {end, true};
}

void PlanState::moveEnd(int32_t storage, Point end) {
  if (ends_[storage] == end) return;
  curve_.add(ends_[storage], model_.storages[storage].bytes);
  curve_.add(end, -model_.storages[storage].bytes);
  ends_[storage] = end;
}

void PlanState::update() {
  regroup();
  updateNeeds();
  replayGroups();
  for (int32_t s : storages_.ids) moveEnd(s, endOf(s).first);
  work_ += static_cast<int64_t>(storages_.ids.size());
  new_groups_.clear();
  for (Marked* marked : {&values_, &loose_, &nodes_, &boundaries_, &storages_}) marked->clear();
}

Evaluation PlanState::measure(int64_t soft_peak) {
  Evaluation result;
  curve_.measure(soft_peak, result);
  work_ += kMeasuring + index_.end / kInstantsAtOnce;
  result.recompute_seconds = static_cast<double>(ticks_) / Model::kTicksPerSecond;
  return result;
}

void PlanState::trace(Timeline& timeline) {
  timeline.evaluation = measure(EvaluationLimits().soft_peak);
  timeline.peak_at = curve_.peaks();
  for (size_t s = 0; s < model_.storages.size(); ++s) {
    const auto [end, persists] = endOf(static_cast<int32_t>(s));
    const int32_t id = model_.storages[s].profile_storage;
    timeline.persists[id] = static_cast<char>(persists);
    timeline.last_alive[id] = std::min(end.instant, index_.end - 1);
  }
  GroupReplay scratch;
  for (const Group& group : groups_) {
    if (!group.values.empty()) replayer_.run(group.values, group.nodes, scratch, &timeline);
  }
}

}  // namespace remat
