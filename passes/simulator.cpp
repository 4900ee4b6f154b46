#include "passes/simulator.h"

#include <algorithm>

#include "llvm/ADT/ArrayRef.h"

namespace remat {

using llvm::ArrayRef;
using Model = SimulationModel;

/// Scratch of one walk. Recomputed bytes of a storage are a second *instance* of it, counted apart
/// from the forward's: instance s is what the forward allocated, instance s + storages.size() what
/// a replay did.
struct Simulator::State {
  explicit State(const Model& model);

  Evaluation walk(const std::vector<char>& keep, const EvaluationLimits& limits,
                  Timeline* timeline);

 private:
  void decide(const std::vector<char>& keep);
  void countNeeds();
  void countHolders();
  template <bool kTrace>
  bool runForward();
  template <bool kTrace>
  bool runBackward();
  template <bool kTrace>
  void unpack(const Model::Slot& slot);
  template <bool kTrace>
  void materialise(int32_t value);
  template <bool kTrace>
  void replay(int32_t node);
  template <bool kTrace>
  void drop(int32_t instance);
  template <bool kTrace>
  void dropCached(int32_t value);
  template <bool kTrace>
  void dropNeed(int32_t value);
  template <bool kTrace>
  void raisePeak(int64_t bytes);

  bool recomputable(int32_t value) const { return recomputable_[value] != 0; }
  bool isHandle(const Model::Slot& slot) const { return slot.value >= 0 && !kept_[slot.storage]; }
  int32_t instance(int32_t storage) const {
    return storage + (replayed_[storage] ? storage_count_ : 0);
  }

  const Model& model_;
  const int32_t storage_count_;
  std::vector<char> kept_;          ///< by storage
  std::vector<char> replayed_;      ///< by storage: comes from a replay wherever a replay shows it
  std::vector<char> recomputable_;  ///< by value
  std::vector<char> start_;         ///< by value: a replay may start from it, so the frame holds it
  std::vector<int32_t> need_;       ///< by value: live handles and needed consumers
  std::vector<int32_t> pending_;    ///< by value: what will still ask the replay cache for it
  std::vector<int32_t> in_run_;     ///< by value: consumers in the materialisation under way
  std::vector<int32_t> horizon_;    ///< by value: node after which an unneeded boundary is dropped
  std::vector<int32_t> needed_outputs_;  ///< by node
  std::vector<char> executed_;           ///< by node: replayed in this backward
  std::vector<char> cached_;             ///< by value
  std::vector<int32_t> holders_;         ///< by instance
  std::vector<int32_t> dies_after_;      ///< by storage
  std::vector<int64_t> dying_;           ///< by node: bytes that die after it
  std::vector<int32_t> in_use_;  ///< instances that unpacked tensors hold until their node is done
  std::vector<int32_t> stack_;
  std::vector<int32_t> run_;       ///< nodes of the materialisation under way
  std::vector<char> in_run_node_;  ///< by node
  EvaluationLimits limits_;
  int64_t live_ = 0;
  int32_t instant_ = 0;
  Evaluation result_;
  Timeline* timeline_ = nullptr;
};

Simulator::State::State(const Model& model)
    : model_(model), storage_count_(static_cast<int32_t>(model.storages.size())) {
  const size_t values = model.values.size();
  const size_t nodes = model.nodes.size();
  kept_.resize(model.storages.size());
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
  holders_.resize(2 * model.storages.size());
  dies_after_.resize(model.storages.size());
  dying_.resize(nodes);
  in_use_.reserve(64);
  stack_.reserve(values + nodes);
  run_.reserve(nodes);
  in_run_node_.resize(nodes);
}

void Simulator::State::decide(const std::vector<char>& keep) {
  for (int32_t s = 0; s < storage_count_; ++s) {
    const Model::Storage& storage = model_.storages[s];
    kept_[s] = !storage.candidate || keep[storage.profile_storage];
  }
  for (size_t value = 0; value < model_.values.size(); ++value) {
    bool at_hand = model_.values[value].at_hand;
    for (int32_t s : model_.value_roots[value]) at_hand |= kept_[s] != 0;
    recomputable_[value] = !at_hand;
  }
  for (int32_t s = 0; s < storage_count_; ++s) {
    replayed_[s] = !kept_[s] && recomputable(model_.storages[s].root);
  }
}

/// Needs, from the last node to the first: what the handles of a finished forward reach, and how
/// long the frame has to hold a boundary before it can know.
void Simulator::State::countNeeds() {
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

void Simulator::State::countHolders() {
  std::fill(holders_.begin(), holders_.end(), 0);
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
void Simulator::State::raisePeak(int64_t bytes) {
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
void Simulator::State::drop(int32_t instance) {
  if (--holders_[instance] > 0) return;
  const bool again = instance >= storage_count_;
  const Model::Storage& storage = model_.storages[again ? instance - storage_count_ : instance];
  live_ -= storage.bytes;
  if (kTrace) {
    (again ? timeline_->replay_last : timeline_->last_alive)[storage.profile_storage] = instant_;
  }
}

template <bool kTrace>
bool Simulator::State::runForward() {
  for (size_t node = 0; node < model_.nodes.size(); ++node) {
    instant_ = static_cast<int32_t>(node);
    const Model::Bulk& bulk = model_.nodes[node].forward;
    raisePeak<kTrace>(live_ + bulk.peak);
    live_ += bulk.delta - dying_[node];
  }
  return result_.peak <= limits_.peak;
}

template <bool kTrace>
void Simulator::State::dropCached(int32_t value) {
  cached_[value] = 0;
  for (int32_t s : model_.value_storages[value]) drop<kTrace>(instance(s));
}

/// Outputs that nobody waits for are gone at once, and so are the op's internals and scratch.
template <bool kTrace>
void Simulator::State::replay(int32_t node) {
  const Model::Node& executed = model_.nodes[node];
  raisePeak<kTrace>(live_ + executed.replay_peak);
  result_.recompute_seconds += executed.seconds;
  for (int32_t s : model_.node_allocs[node]) {
    // One holder while the op runs; a second execution shares the count with the first.
    if (holders_[s + storage_count_]++ == 0) live_ += model_.storages[s].bytes;
    if (kTrace) {
      int32_t& first = timeline_->replay_first[model_.storages[s].profile_storage];
      if (first < 0) first = instant_;
    }
  }
  for (int32_t output : model_.node_outputs[node]) {
    if (!recomputable(output) || cached_[output] || pending_[output] + in_run_[output] == 0)
      continue;
    cached_[output] = 1;
    for (int32_t s : model_.value_storages[output]) holders_[instance(s)]++;
  }
  for (int32_t s : model_.node_allocs[node]) drop<kTrace>(s + storage_count_);
  for (int32_t input : model_.node_inputs[node]) {
    if (!recomputable(input)) continue;
    in_run_[input]--;
    if (!executed_[node] && pending_[input] > 0) pending_[input]--;
    if (cached_[input] && pending_[input] + in_run_[input] == 0) dropCached<kTrace>(input);
  }
  executed_[node] = 1;
}

template <bool kTrace>
void Simulator::State::materialise(int32_t value) {
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
void Simulator::State::unpack(const Model::Slot& slot) {
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
  const int32_t held = instance(slot.storage);
  holders_[held]++;
  in_use_.push_back(held);
  if (pending_[slot.value] > 0) pending_[slot.value]--;
  if (cached_[slot.value] && pending_[slot.value] == 0) dropCached<kTrace>(slot.value);
}

/// One handle less on a value; what nobody needs any more lets go of its inputs, boundaries of
/// their bytes.
template <bool kTrace>
void Simulator::State::dropNeed(int32_t value) {
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
bool Simulator::State::runBackward() {
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

Evaluation Simulator::State::walk(const std::vector<char>& keep, const EvaluationLimits& limits,
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

Simulator::Simulator(const PlanningInput& input)
    : model_(std::make_shared<const SimulationModel>(input)),
      state_(std::make_unique<State>(*model_)) {}

Simulator::Simulator(const Simulator& other)
    : model_(other.model_), state_(std::make_unique<State>(*model_)) {}

Simulator& Simulator::operator=(const Simulator& other) {
  if (this != &other) *this = Simulator(other);
  return *this;
}

Simulator::Simulator(Simulator&&) noexcept = default;
Simulator& Simulator::operator=(Simulator&&) noexcept = default;
Simulator::~Simulator() = default;

Evaluation Simulator::evaluate(const std::vector<char>& keep, const EvaluationLimits& limits) {
  return state_->walk(keep, limits, nullptr);
}

Timeline Simulator::trace(const std::vector<char>& keep) {
  Timeline timeline;
  const size_t instants = model_->nodes.size() + model_->backward.size();
  const size_t storages = model_->profile_to_model.size();
  timeline.forward_instants = static_cast<int32_t>(model_->nodes.size());
  timeline.peak_at.assign(instants, 0);
  for (const Model::Node& node : model_->nodes) timeline.profile_index.push_back(node.profile_node);
  for (const Model::BackwardOp& op : model_->backward) {
    timeline.profile_index.push_back(op.profile_step);
  }
  timeline.first_alive.assign(storages, -1);
  timeline.last_alive.assign(storages, -1);
  timeline.replay_first.assign(storages, -1);
  timeline.replay_last.assign(storages, -1);
  timeline.persists.assign(storages, 0);
  for (int32_t node = 0; node < model_->node_allocs.size(); ++node) {
    for (int32_t s : model_->node_allocs[node]) {
      timeline.first_alive[model_->storages[s].profile_storage] = node;
    }
  }
  timeline.evaluation = state_->walk(keep, EvaluationLimits(), &timeline);
  return timeline;
}

std::vector<int32_t> Simulator::candidates() const {
  std::vector<int32_t> ids;
  ids.reserve(model_->candidates.size());
  for (int32_t s : model_->candidates) ids.push_back(model_->storages[s].profile_storage);
  return ids;
}

std::vector<char> Simulator::keepAll() const {
  return std::vector<char>(model_->profile_to_model.size(), 1);
}

bool Simulator::consistent() { return evaluate(keepAll()).peak == model_->measured_peak; }

}  // namespace remat
