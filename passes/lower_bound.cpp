#include "passes/lower_bound.h"

#include <algorithm>
#include <limits>

#include "passes/simulation_index.h"

namespace remat {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
/// Progress below this, as a share of the forward, is none; without any for kPatience rounds the
/// steps get smaller.
constexpr double kProgress = 1e-6;
constexpr int kPatience = 40;
constexpr double kShorten = 0.7;
constexpr double kShortest = 1e-4;
/// The subgradient steps aim a little above the known plan.
constexpr double kAim = 1.02;
/// MinCut's prices are integers of this part of their sum: what rounding can add to a cut.
constexpr double kRounding = 1e-12;

}  // namespace

LowerBound::LowerBound(Simulator& simulator) : model_(simulator.model()), cut_(model_) {
  const Timeline timeline = simulator.trace(simulator.keepAll());
  base_ = timeline.peak_at;
  begins_.assign(model_.storages.size(), 0);
  ends_.assign(model_.storages.size(), -1);
  for (size_t s = 0; s < model_.storages.size(); ++s)
    begins_[s] = model_.storages[s].dies_after + 1;
  findUses();
  for (int32_t s : model_.candidates) {
    const int32_t id = model_.storages[s].profile_storage;
    visitHeld(s, timeline.last_alive[id], [&](Span held) {
      for (int32_t i = held.begin; i <= held.end; ++i) base_[i] -= model_.storages[s].bytes;
    });
  }
  findCasts(timeline);
  floor_ = base_.empty() ? 0 : *std::max_element(base_.begin(), base_.end());
  findEnds();
  multiplier_.assign(base_.size(), 0);
  price_until_.assign(base_.size() + 1, 0);
  change_.resize(base_.size() + 1);
  prices_.keep.assign(model_.storages.size(), 0);
  for (const SimulationModel::Node& node : model_.nodes) prices_.recompute.push_back(node.seconds);
  prices_.cast.assign(model_.storages.size(), 0);
  pays_.resize(model_.storages.size());
  pays_casts_.resize(model_.storages.size());
  available_.resize(model_.values.size());
  replayed_.resize(model_.nodes.size());
}

/// From the instant after an unpack, whose replays come first, to the end of the node's backward.
void LowerBound::findUses() {
  const SimulationIndex index(model_);
  uses_.resize(model_.storages.size());
  for (size_t i = 0; i < model_.backward.size(); ++i) {
    const SimulationModel::BackwardOp& op = model_.backward[i];
    if (op.kind != SimulationModel::OpKind::kUnpack) continue;
    const SimulationModel::Slot& slot = model_.slots[op.slot];
    if (slot.value < 0 || slot.cast >= 0 || !model_.storages[slot.storage].candidate) continue;
    const int32_t first = index.forward + static_cast<int32_t>(i) + 1;
    const int32_t last = std::min(index.use_end[i], index.end - 1);
    std::vector<Span>& uses = uses_[slot.storage];
    if (!uses.empty() && first <= uses.back().end + 1) {
      uses.back().end = std::max(uses.back().end, last);
    } else if (first <= last) {
      uses.push_back({first, last});
    }
  }
}

/// What autocast made of a storage is there while that is kept. (Where it isn't, each use makes it
/// again for itself: the bound does without.)
void LowerBound::findCasts(const Timeline& timeline) {
  casts_.resize(model_.storages.size());
  for (const SimulationModel::Slot& slot : model_.slots) {
    if (slot.cast < 0 || !model_.storages[slot.storage].candidate) continue;
    std::vector<int32_t>& casts = casts_[slot.storage];
    if (std::find(casts.begin(), casts.end(), slot.cast) != casts.end()) continue;
    casts.push_back(slot.cast);
    const SimulationModel::Storage& cast = model_.storages[slot.cast];
    const int32_t last = timeline.last_alive[cast.profile_storage];
    for (int32_t i = begins_[slot.cast]; i <= last; ++i) base_[i] -= cast.bytes;
  }
}

/// Calls `at(span)` for the instants up to `end` in which keeping the storage makes a difference.
template <typename Visit>
void LowerBound::visitHeld(int32_t storage, int32_t end, Visit at) const {
  int32_t begin = begins_[storage];
  for (const Span& use : uses_[storage]) {
    if (begin < use.begin) at(Span{begin, std::min(end, use.begin - 1)});
    begin = std::max(begin, use.end + 1);
    if (begin > end) return;
  }
  if (begin <= end) at(Span{begin, end});
}

void LowerBound::findEnds() {
  const auto forward = static_cast<int32_t>(model_.nodes.size());
  for (size_t i = 0; i < model_.backward.size(); ++i) {
    const SimulationModel::BackwardOp& op = model_.backward[i];
    if (op.slot < 0 || op.kind != SimulationModel::OpKind::kRelease) continue;
    const SimulationModel::Slot& slot = model_.slots[op.slot];
    ends_[slot.cast >= 0 ? slot.cast : slot.storage] = forward + static_cast<int32_t>(i);
  }
  endUnsaved();
}

/// Storages without slots, from the last node to the first: until when every plan that starts a
/// replay from one needs it.
void LowerBound::endUnsaved() {
  const auto forward = static_cast<int32_t>(model_.nodes.size());
  // By value, the earliest instants at which its own handles and its consumers can be done with it.
  std::vector<int32_t> handles(model_.values.size(), -1);
  std::vector<int32_t> consumers(model_.values.size(), kNever);
  std::vector<int32_t> dropped(model_.storages.size(), -1);  // the last of its slots that asks
  for (size_t i = 0; i < model_.backward.size(); ++i) {
    const SimulationModel::BackwardOp& op = model_.backward[i];
    if (op.slot < 0 || op.kind != SimulationModel::OpKind::kRelease) continue;
    const int32_t value = model_.slots[op.slot].value;
    if (value < 0) continue;
    handles[value] = forward + static_cast<int32_t>(i);
    dropped[model_.slots[op.slot].storage] = forward + static_cast<int32_t>(i);
  }
  for (int32_t node = forward - 1; node >= 0; --node) {
    int32_t earliest = kNever;
    for (int32_t output : model_.node_outputs[node]) {
      if (model_.values[output].at_hand) continue;
      const auto roots = model_.value_roots[output];
      int32_t saved = -1;
      for (int32_t s : roots) saved = std::max(saved, dropped[s]);
      int32_t end = consumers[output];
      if (saved >= 0) {
        end = saved;  // dropped, all its slots ask for it
      } else {
        if (handles[output] >= 0) end = std::min(end, handles[output]);
        // A value with several storages is at hand through any of them: nothing is sure then.
        if (roots.size() == 1 && end != kNever && model_.storages[roots[0]].slots == 0) {
          ends_[roots[0]] = end;
        }
      }
      earliest = std::min(earliest, end);
    }
    if (earliest == kNever) continue;
    for (int32_t input : model_.node_inputs[node]) {
      consumers[input] = std::min(consumers[input], earliest);
    }
  }
}

/// What the plan pays by definition: its needs are followed from the unpacked slots; notes in
/// pays_ which storages it keeps and needs.
double LowerBound::price(const std::vector<char>& keep, const CutPrices& prices) {
  std::fill(pays_.begin(), pays_.end(), 0);
  std::fill(pays_casts_.begin(), pays_casts_.end(), 0);
  std::fill(available_.begin(), available_.end(), 0);
  std::fill(replayed_.begin(), replayed_.end(), 0);
  stack_.clear();
  double sum = 0;
  const auto ask = [&](int32_t value) {
    if (model_.values[value].at_hand || available_[value] != 0) return;
    available_[value] = 1;
    stack_.push_back(value);
  };
  for (const SimulationModel::Slot& slot : model_.slots) {
    if (!slot.unpacked || slot.value < 0 || !model_.storages[slot.storage].candidate) continue;
    if (slot.cast < 0 || keep[slot.storage] == 0) ask(model_.storages[slot.storage].root);
    if (keep[slot.storage] == 0) {
      ask(slot.value);
    } else if (slot.cast >= 0 && pays_casts_[slot.storage] == 0) {
      pays_casts_[slot.storage] = 1;
      sum += prices.cast[slot.storage];
    }
  }
  while (!stack_.empty()) {
    const int32_t value = stack_.back();
    stack_.pop_back();
    const auto roots = model_.value_roots[value];
    bool replayed = roots.empty();
    for (int32_t s : roots) {
      if (keep[s] == 0) {
        replayed = true;
      } else if (pays_[s] == 0) {
        pays_[s] = 1;
        sum += prices.keep[s];
      }
    }
    const int32_t producer = model_.values[value].producer;
    if (!replayed || replayed_[producer] != 0) continue;
    replayed_[producer] = 1;
    sum += prices.recompute[producer];
    for (int32_t input : model_.node_inputs[producer]) ask(input);
  }
  return sum;
}

/// The dual function at the multipliers.
double LowerBound::round(int64_t budget) {
  for (size_t i = 0; i < base_.size(); ++i) price_until_[i + 1] = price_until_[i] + multiplier_[i];
  double total = 0;
  for (int32_t s : model_.candidates) {
    double per_byte = 0;
    visitHeld(s, ends_[s], [&](Span held) {
      per_byte += price_until_[held.end + 1] - price_until_[held.begin];
    });
    prices_.keep[s] = static_cast<double>(model_.storages[s].bytes) * per_byte;
    prices_.cast[s] = 0;
    for (const int32_t cast : casts_[s]) {
      if (ends_[cast] < begins_[cast]) continue;
      prices_.cast[s] += static_cast<double>(model_.storages[cast].bytes) *
                         (price_until_[ends_[cast] + 1] - price_until_[begins_[cast]]);
    }
    total += prices_.keep[s] + prices_.cast[s];
  }
  for (double seconds : prices_.recompute) total += seconds;
  const auto edges = static_cast<double>(2 * model_.candidates.size() + model_.nodes.size());
  double bound = price(cut_.solve(prices_), prices_) - edges * kRounding * total;
  for (size_t i = 0; i < base_.size(); ++i) {
    bound += multiplier_[i] * static_cast<double>(base_[i] - budget);
  }
  return bound;
}

/// One projected step along the subgradient: how far above the budget the cut's plan is.
void LowerBound::step(int64_t budget, double distance) {
  std::fill(change_.begin(), change_.end(), 0);
  for (int32_t s : model_.candidates) {
    if (pays_casts_[s] != 0) {
      for (const int32_t cast : casts_[s]) {
        if (ends_[cast] < begins_[cast]) continue;
        const auto bytes = static_cast<double>(model_.storages[cast].bytes);
        change_[begins_[cast]] += bytes;
        change_[ends_[cast] + 1] -= bytes;
      }
    }
    if (pays_[s] == 0) continue;
    const auto bytes = static_cast<double>(model_.storages[s].bytes);
    visitHeld(s, ends_[s], [&](Span held) {
      change_[held.begin] += bytes;
      change_[held.end + 1] -= bytes;
    });
  }
  double kept = 0;
  double norm = 0;
  for (size_t i = 0; i < base_.size(); ++i) {
    kept += change_[i];
    change_[i] = static_cast<double>(base_[i] - budget) + kept;
    if (multiplier_[i] <= 0 && change_[i] < 0) change_[i] = 0;
    norm += change_[i] * change_[i];
  }
  if (norm == 0) return;
  for (size_t i = 0; i < base_.size(); ++i) {
    multiplier_[i] = std::max(0.0, multiplier_[i] + distance / norm * change_[i]);
  }
}

double LowerBound::seconds(int64_t budget, double known, int rounds) {
  if (floor_ > budget) return kInfinity;
  double forward = 0;
  for (double seconds : prices_.recompute) forward += seconds;
  std::fill(multiplier_.begin(), multiplier_.end(), 0);
  double best = 0;
  double length = 1;
  int waited = 0;
  for (int i = 0; i < rounds && best < known && length > kShortest; ++i) {
    const double bound = round(budget);
    if (bound > best + kProgress * forward) {
      waited = 0;
    } else if (++waited > kPatience) {
      length *= kShorten;
      waited = 0;
    }
    best = std::max(best, bound);
    step(budget, length * std::max(1e-4 * forward, kAim * known - bound));
  }
  return std::min(best, known);
}

}  // namespace remat
