#include "passes/cut_seeds.h"

#include <algorithm>
#include <cmath>

namespace remat {

CutSeeds::CutSeeds(Simulator& simulator, PlanArchive& archive)
    : simulator_(simulator), archive_(archive), model_(simulator.model()), cut_(model_) {
  estimateLifetimes();
}

std::vector<char> CutSeeds::toProfile(const std::vector<char>& keep) const {
  std::vector<char> result = simulator_.keepAll();
  for (size_t storage = 0; storage < keep.size(); ++storage) {
    result[model_.storages[storage].profile_storage] = keep[storage];
  }
  return result;
}

/// From the slots alone: a storage that nobody saved is needed while its dependents' slots are.
void CutSeeds::estimateLifetimes() {
  const auto storages = static_cast<int32_t>(model_.storages.size());
  const auto forward = static_cast<int32_t>(model_.nodes.size());
  dropped_.resize(storages);
  kept_until_.assign(storages, -1);
  replay_first_.assign(storages, -1);
  replay_last_.assign(storages, -1);
  for (int32_t s = 0; s < storages; ++s) dropped_[s] = model_.storages[s].dies_after;
  for (size_t i = 0; i < model_.backward.size(); ++i) {
    const SimulationModel::BackwardOp& op = model_.backward[i];
    if (op.slot < 0) continue;
    const int32_t s = model_.slots[op.slot].storage;
    const int32_t instant = forward + static_cast<int32_t>(i);
    if (op.kind == SimulationModel::OpKind::kRelease) {
      const int32_t cast = model_.slots[op.slot].cast;
      kept_until_[cast >= 0 ? cast : s] = instant;
    }
    if (op.kind == SimulationModel::OpKind::kUnpack) {
      if (replay_first_[s] < 0) replay_first_[s] = instant;
      replay_last_[s] = instant + 1;
    }
  }
  // Results before inputs: an unsaved storage follows the nodes that read it.
  for (int32_t node = forward - 1; node >= 0; --node) {
    int32_t first = -1;
    int32_t last = -1;
    for (int32_t output : model_.node_outputs[node]) {
      for (int32_t s : model_.value_storages[output]) {
        last = std::max(last, kept_until_[s]);
        if (replay_first_[s] >= 0 && (first < 0 || replay_first_[s] < first)) {
          first = replay_first_[s];
        }
      }
    }
    for (int32_t input : model_.node_inputs[node]) {
      for (int32_t s : model_.value_storages[input]) {
        if (model_.storages[s].slots > 0) continue;
        kept_until_[s] = std::max(kept_until_[s], last);
        if (first >= 0 && (replay_first_[s] < 0 || first < replay_first_[s])) {
          replay_first_[s] = replay_last_[s] = first;
        }
      }
    }
  }
}

/// `price_until[i]`: seconds per byte for being alive in all instants before i.
CutPrices CutSeeds::pricesAt(const std::vector<double>& price_until) const {
  CutPrices prices;
  prices.keep.resize(model_.storages.size(), 0);
  prices.recompute.reserve(model_.nodes.size());
  for (int32_t s : model_.candidates) {
    const int32_t from = std::min(dropped_[s] + 1, static_cast<int32_t>(price_until.size()) - 1);
    const int32_t until = std::max(from, kept_until_[s] + 1);
    prices.keep[s] =
        static_cast<double>(model_.storages[s].bytes) * (price_until[until] - price_until[from]);
  }
  const auto last = static_cast<int32_t>(price_until.size()) - 1;
  prices.cast.resize(model_.storages.size(), 0);
  for (const SimulationModel::Slot& slot : model_.slots) {
    if (slot.cast < 0) continue;
    const int32_t from = std::min(dropped_[slot.cast] + 1, last);
    const int32_t until = std::max(from, kept_until_[slot.cast] + 1);
    prices.cast[slot.storage] += static_cast<double>(model_.storages[slot.cast].bytes) *
                                 (price_until[until] - price_until[from]);
  }
  for (size_t node = 0; node < model_.nodes.size(); ++node) {
    double price = model_.nodes[node].seconds;
    for (int32_t s : model_.node_allocs[static_cast<int32_t>(node)]) {
      if (replay_first_[s] < 0) continue;
      price += static_cast<double>(model_.storages[s].bytes) *
               std::max(0.0, price_until[replay_last_[s] + 1] - price_until[replay_first_[s]]);
    }
    prices.recompute.push_back(price);
  }
  return prices;
}

void CutSeeds::sweepPrices(int steps) {
  double seconds = 0;
  double bytes = 0;
  for (const SimulationModel::Node& node : model_.nodes) seconds += node.seconds;
  for (int32_t s : model_.candidates) bytes += static_cast<double>(model_.storages[s].bytes);
  if (bytes == 0) return;
  CutPrices prices;
  for (const SimulationModel::Node& node : model_.nodes) prices.recompute.push_back(node.seconds);
  prices.keep.resize(model_.storages.size(), 0);
  for (int step = 0; step < steps; ++step) {
    const double per_byte = seconds / bytes * std::pow(10.0, -3 + 5.0 * step / steps);
    for (int32_t s : model_.candidates) {
      prices.keep[s] = per_byte * static_cast<double>(model_.storages[s].bytes);
    }
    prices.cast.assign(model_.storages.size(), 0);
    for (const SimulationModel::Slot& slot : model_.slots) {
      if (slot.cast < 0) continue;
      prices.cast[slot.storage] += per_byte * static_cast<double>(model_.storages[slot.cast].bytes);
    }
    const std::vector<char> keep = toProfile(cut_.solve(prices));
    archive_.offer(simulator_.evaluate(keep), keep);
  }
}

void CutSeeds::forBudget(int64_t budget, int rounds) {
  Timeline timeline = simulator_.trace(simulator_.keepAll());
  const size_t instants = timeline.peak_at.size();
  std::vector<double> weight(instants, 0);
  double seconds = 0;
  double bytes = 0;
  for (const SimulationModel::Node& node : model_.nodes) seconds += node.seconds;
  for (int32_t s : model_.candidates) bytes += static_cast<double>(model_.storages[s].bytes);
  if (bytes == 0) return;
  double level = 0.3 * seconds / bytes;
  const double scale = 4.0 / static_cast<double>(std::max<int64_t>(1, budget));
  for (size_t i = 0; i < instants; ++i) weight[i] = timeline.peak_at[i] > budget ? 1 : 1e-3;
  std::vector<double> price_until(instants + 1, 0);
  for (int round = 0; round < rounds; ++round) {
    double sum = 0;
    for (double w : weight) sum += w;
    for (size_t i = 0; i < instants; ++i) {
      price_until[i + 1] = price_until[i] + level * weight[i] / sum;
    }
    const std::vector<char> keep = toProfile(cut_.solve(pricesAt(price_until)));
    timeline = simulator_.trace(keep);
    archive_.offer(timeline.evaluation, keep);
    const double step = scale / std::sqrt(1.0 + round);
    for (size_t i = 0; i < instants; ++i) {
      const auto above = static_cast<double>(timeline.peak_at[i] - budget);
      weight[i] = std::max(1e-9, weight[i] * std::exp(std::max(-2.0, std::min(2.0, step * above))));
    }
    level *= timeline.evaluation.peak > budget ? 1.15 : 0.93;
    for (int32_t s : model_.candidates) {
      const int32_t id = model_.storages[s].profile_storage;
      if (timeline.persists[id]) kept_until_[s] = timeline.last_alive[id];
      if (timeline.replay_first[id] >= 0) {
        replay_first_[s] = timeline.replay_first[id];
        replay_last_[s] = timeline.replay_last[id];
      }
    }
  }
}

}  // namespace remat
