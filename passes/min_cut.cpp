#include "passes/min_cut.h"

#include <algorithm>
#include <limits>

namespace remat {
namespace {

constexpr int32_t kSource = 0;
constexpr int32_t kSink = 1;
constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max() / 4;
/// Prices become integers, so that the flow ends exactly and does not depend on rounding.
constexpr double kSteps = 1e12;

}  // namespace

MinCut::MinCut(const SimulationModel& model) : model_(model) {
  available_.assign(model.values.size(), -1);
  for (size_t value = 0; value < model.values.size(); ++value) {
    if (!model.values[value].at_hand) available_[value] = vertices_++;
  }
  replayed_.assign(model.nodes.size(), -1);
  replay_edge_.assign(model.nodes.size(), -1);
  for (int32_t node = 0; node < static_cast<int32_t>(model.nodes.size()); ++node) {
    for (int32_t output : model.node_outputs[node]) {
      if (available_[output] < 0) continue;
      if (replayed_[node] < 0) {
        replayed_[node] = vertices_++;
        replay_edge_[node] = static_cast<int32_t>(edges_.size());
        addEdge(replayed_[node], kSink, 0);
        for (int32_t input : model.node_inputs[node]) {
          if (available_[input] >= 0) addEdge(replayed_[node], available_[input], kInfinite);
        }
      }
      if (model.value_roots[output].empty())
        addEdge(available_[output], replayed_[node], kInfinite);
    }
  }
  recomputed_.assign(model.storages.size(), -1);
  keep_edge_.assign(model.storages.size(), -1);
  cast_edge_.assign(model.storages.size(), -1);
  for (int32_t storage : model.candidates) {
    const int32_t root = model.storages[storage].root;
    recomputed_[storage] = vertices_++;
    keep_edge_[storage] = static_cast<int32_t>(edges_.size());
    addEdge(available_[root], recomputed_[storage], 0);
    addEdge(recomputed_[storage], replayed_[model.values[root].producer], kInfinite);
  }
  for (const SimulationModel::Slot& slot : model.slots) {
    if (!slot.unpacked || slot.value < 0 || recomputed_[slot.storage] < 0) continue;
    const int32_t root = model.storages[slot.storage].root;
    if (slot.cast < 0) {
      addEdge(kSource, available_[root], kInfinite);
    } else if (cast_edge_[slot.storage] < 0) {
      cast_edge_[slot.storage] = static_cast<int32_t>(edges_.size());
      addEdge(kSource, recomputed_[slot.storage], 0);
    }
    if (slot.value != root && available_[slot.value] >= 0) {
      addEdge(recomputed_[slot.storage], available_[slot.value], kInfinite);
    }
  }
  linkEdges();
}

void MinCut::addEdge(int32_t from, int32_t to, int64_t capacity) {
  tails_.push_back(from);
  edges_.push_back({to, capacity});
  tails_.push_back(to);
  edges_.push_back({from, 0});
}

void MinCut::linkEdges() {
  for (const Edge& edge : edges_) initial_.push_back(edge.capacity);
  first_.assign(vertices_ + 1, 0);
  for (int32_t tail : tails_) first_[tail + 1]++;
  for (int32_t vertex = 0; vertex < vertices_; ++vertex) first_[vertex + 1] += first_[vertex];
  std::vector<int32_t> fill(first_.begin(), first_.end() - 1);
  order_.resize(edges_.size());
  for (size_t edge = 0; edge < edges_.size(); ++edge) {
    order_[fill[tails_[edge]]++] = static_cast<int32_t>(edge);
  }
  level_.resize(vertices_);
  next_.resize(vertices_);
}

bool MinCut::findLevels() {
  std::fill(level_.begin(), level_.end(), -1);
  level_[kSource] = 0;
  path_.assign(1, kSource);
  for (size_t head = 0; head < path_.size(); ++head) {
    const int32_t vertex = path_[head];
    for (int32_t i = first_[vertex]; i < first_[vertex + 1]; ++i) {
      const Edge& edge = edges_[order_[i]];
      if (edge.capacity <= 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[vertex] + 1;
      path_.push_back(edge.to);
    }
  }
  return level_[kSink] >= 0;
}

/// One blocking flow along shortest paths, depth first without recursion: `path_` holds the edges
/// taken.
int64_t MinCut::augment() {
  std::copy(first_.begin(), first_.end() - 1, next_.begin());
  int64_t total = 0;
  path_.clear();
  int32_t vertex = kSource;
  while (true) {
    if (vertex == kSink) {
      int64_t flow = kInfinite;
      for (int32_t edge : path_) flow = std::min(flow, edges_[edge].capacity);
      size_t keep = path_.size();
      for (size_t i = path_.size(); i-- > 0;) {
        edges_[path_[i]].capacity -= flow;
        edges_[path_[i] ^ 1].capacity += flow;
        if (edges_[path_[i]].capacity == 0) keep = i;
      }
      total += flow;
      path_.resize(keep);
      vertex = path_.empty() ? kSource : edges_[path_.back()].to;
      continue;
    }
    int32_t taken = -1;
    for (int32_t& i = next_[vertex]; i < first_[vertex + 1]; ++i) {
      const Edge& edge = edges_[order_[i]];
      if (edge.capacity > 0 && level_[edge.to] == level_[vertex] + 1) {
        taken = order_[i];
        break;
      }
    }
    if (taken >= 0) {
      path_.push_back(taken);
      vertex = edges_[taken].to;
    } else if (path_.empty()) {
      return total;
    } else {
      level_[vertex] = -1;
      vertex = edges_[path_.back() ^ 1].to;
      path_.pop_back();
    }
  }
}

std::vector<char> MinCut::solve(const CutPrices& prices) {
  double sum = 1e-30;
  for (double price : prices.keep) sum += price;
  for (double price : prices.recompute) sum += price;
  for (double price : prices.cast) sum += price;
  // A price that is no number (the sum has overflowed) or below nothing counts as nothing: an edge
  // of negative capacity would never be used up.
  auto toInteger = [&](double price) {
    const double share = price / sum;
    return share > 0 ? static_cast<int64_t>(std::min(share, 1.0) * kSteps) : 0;
  };
  for (size_t edge = 0; edge < edges_.size(); ++edge) edges_[edge].capacity = initial_[edge];
  for (int32_t storage : model_.candidates) {
    edges_[keep_edge_[storage]].capacity = toInteger(prices.keep[storage]);
    if (cast_edge_[storage] < 0 || prices.cast.empty()) continue;
    edges_[cast_edge_[storage]].capacity = toInteger(prices.cast[storage]);
  }
  for (size_t node = 0; node < model_.nodes.size(); ++node) {
    if (replay_edge_[node] < 0) continue;
    edges_[replay_edge_[node]].capacity = toInteger(prices.recompute[node]);
  }
  while (findLevels()) augment();
  std::vector<char> keep(model_.storages.size(), 1);
  for (int32_t storage : model_.candidates) keep[storage] = level_[recomputed_[storage]] < 0;
  return keep;
}

}  // namespace remat
