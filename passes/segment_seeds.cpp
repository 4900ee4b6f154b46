#include "passes/segment_seeds.h"

#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <array>
#include <limits>

#include "ir/plan.h"

namespace remat {
namespace {

constexpr int32_t kMostPositions = 192;
/// Labels are told apart by this many steps of kept bytes up to the budget.
constexpr int64_t kSteps = 160;

}  // namespace

SegmentSeeds::SegmentSeeds(Simulator& simulator, const std::vector<std::vector<char>>& guides)
    : simulator_(simulator), model_(simulator.model()) {
  choosePositions();
  addGuide(simulator.keepAll(), /*whole=*/false);
  const Guide& all = guides_.front();
  saved_until_ = all.kept_until;
  for (size_t slice = 0; slice < all.peak.size(); ++slice) {
    working_.push_back(std::max<int64_t>(0, all.peak[slice] - all.kept_until[slice + 1]));
  }
  addGuide(simulator.dropAll(), /*whole=*/true);
  for (const std::vector<char>& guide : guides) addGuide(guide, /*whole=*/false);
}

/// Before every node, or in long steps the cheapest position of each stretch.
void SegmentSeeds::choosePositions() {
  const auto nodes = static_cast<int32_t>(model_.nodes.size());
  std::vector<int64_t> bytes_across(nodes + 1, 0);
  std::vector<int32_t> producer(model_.storages.size(), 0);
  for (int32_t node = 0; node < nodes; ++node) {
    for (int32_t storage : model_.node_allocs[node]) producer[storage] = node;
  }
  for (int32_t storage : model_.candidates) {
    const SimulationModel::Storage& crossing = model_.storages[storage];
    bytes_across[producer[storage] + 1] += crossing.bytes;
    if (crossing.dies_after + 1 <= nodes) bytes_across[crossing.dies_after + 1] -= crossing.bytes;
  }
  for (int32_t node = 1; node <= nodes; ++node) bytes_across[node] += bytes_across[node - 1];
  positions_.push_back(0);
  const int32_t stride = std::max(1, (nodes + kMostPositions - 1) / kMostPositions);
  for (int32_t begin = 1; begin < nodes; begin += stride) {
    int32_t best = begin;
    for (int32_t node = begin; node < std::min(nodes, begin + stride); ++node) {
      if (bytes_across[node] < bytes_across[best]) best = node;
    }
    positions_.push_back(best);
  }
  positions_.push_back(nodes);
  slice_of_.resize(nodes);
  for (size_t slice = 0; slice + 1 < positions_.size(); ++slice) {
    for (int32_t node = positions_[slice]; node < positions_[slice + 1]; ++node) {
      slice_of_[node] = static_cast<int32_t>(slice);
    }
  }
  crossing_.resize(positions_.size());
  for (size_t i = 1; i + 1 < positions_.size(); ++i) {
    for (int32_t storage : model_.candidates) {
      if (producer[storage] < positions_[i] &&
          model_.storages[storage].dies_after >= positions_[i]) {
        crossing_[i].push_back({storage, slice_of_[producer[storage]]});
      }
    }
    std::stable_sort(crossing_[i].begin(), crossing_[i].end(),
                     [](const Crossing& a, const Crossing& b) { return a.slice > b.slice; });
  }
}

void SegmentSeeds::addGuide(std::vector<char> keep, bool whole) {
  const Timeline timeline = simulator_.trace(keep);
  const size_t slices = positions_.size() - 1;
  Guide guide;
  guide.whole = whole;
  guide.kept_until.assign(slices + 1, 0);
  guide.seconds_until.assign(slices + 1, 0);
  guide.peak.assign(slices, 0);
  for (int32_t node = 0; node < static_cast<int32_t>(model_.nodes.size()); ++node) {
    bool replayed = false;
    const int32_t slice = slice_of_[node];
    for (int32_t storage : model_.node_allocs[node]) {
      const int32_t id = model_.storages[storage].profile_storage;
      replayed |= timeline.replay_first[id] >= 0;
      if (timeline.persists[id]) guide.kept_until[slice + 1] += model_.storages[storage].bytes;
    }
    if (replayed) guide.seconds_until[slice + 1] += model_.nodes[node].seconds;
  }
  for (size_t slice = 0; slice < slices; ++slice) {
    guide.kept_until[slice + 1] += guide.kept_until[slice];
    guide.seconds_until[slice + 1] += guide.seconds_until[slice];
  }
  for (size_t i = timeline.forward_instants; i < timeline.peak_at.size(); ++i) {
    const int32_t node = model_.backward[i - timeline.forward_instants].node;
    if (node < 0) continue;
    int64_t& peak = guide.peak[slice_of_[node]];
    peak = std::max(peak, timeline.peak_at[i]);
  }
  guide.keep = std::move(keep);
  guide.persists = timeline.persists;
  guides_.push_back(std::move(guide));
}

/// A guide's way backward from one position.
struct SegmentSeeds::Reach {
  int64_t peak = 0;
  int64_t boundary = 0;
  double boundary_seconds = 0;
  size_t crossed = 0;
};

/// What the segments between `begin` and `end` take if they follow a guide, for those guides that
/// no other beats in everything. Follows `reaches` on to `begin`.
void SegmentSeeds::findOptions(int32_t begin, int32_t end, int64_t working,
                               std::vector<Reach>& reaches, std::vector<Option>& options) const {
  const std::vector<Crossing>& crossing = crossing_[end];
  options.clear();
  for (size_t g = 0; g < guides_.size(); ++g) {
    const Guide& guide = guides_[g];
    Reach& reach = reaches[g];
    reach.peak = std::max(reach.peak, guide.peak[begin]);
    for (; reach.crossed < crossing.size() && crossing[reach.crossed].slice >= begin;
         ++reach.crossed) {
      const SimulationModel::Storage& storage = model_.storages[crossing[reach.crossed].storage];
      if (!guide.persists[storage.profile_storage]) reach.boundary += storage.bytes;
      if (guide.keep[storage.profile_storage] != ir::kKeep) {
        reach.boundary_seconds += model_.nodes[model_.values[storage.root].producer].seconds;
      }
    }
    Option option;
    option.guide = static_cast<int32_t>(g);
    option.taken = guide.whole ? saved_until_[end] - saved_until_[begin] + working
                               : reach.peak - guide.kept_until[begin];
    option.added = guide.kept_until[end] - guide.kept_until[begin] + reach.boundary;
    option.seconds = std::max(
        0.0, guide.seconds_until[end] - guide.seconds_until[begin] - reach.boundary_seconds);
    auto beats = [](const Option& a, const Option& b) {
      return a.taken <= b.taken && a.added <= b.added && a.seconds <= b.seconds;
    };
    if (llvm::any_of(options, [&](const Option& other) { return beats(other, option); })) continue;
    llvm::erase_if(options, [&](const Option& other) { return beats(option, other); });
    options.push_back(option);
  }
}

/// Adds to the labels at `end` every segment that ends there, then keeps the best.
void SegmentSeeds::extend(std::vector<std::vector<Label>>& labels, int32_t end,
                          int64_t budget) const {
  std::array<Label, kSteps> found;
  for (Label& label : found) label.seconds = std::numeric_limits<double>::infinity();
  const double steps_per_byte = (kSteps - 1) / std::max(1.0, static_cast<double>(budget));
  std::vector<Reach> reaches(guides_.size());
  std::vector<Option> options;
  int64_t working = 0;
  for (int32_t begin = end - 1; begin >= 0; --begin) {
    working = std::max(working, working_[begin]);
    findOptions(begin, end, working, reaches, options);
    for (const Option& option : options) {
      const int64_t most = budget - std::max(option.taken, option.added);
      for (size_t i = 0; i < labels[begin].size(); ++i) {
        const Label& from = labels[begin][i];
        // Labels are in ascending order of kept bytes.
        if (from.kept > most) break;
        const int64_t kept = from.kept + option.added;
        Label& best = found[static_cast<size_t>(static_cast<double>(kept) * steps_per_byte)];
        if (from.seconds + option.seconds < best.seconds) {
          best = {kept, from.seconds + option.seconds, begin, static_cast<int32_t>(i),
                  option.guide};
        }
      }
    }
  }
  double fastest = std::numeric_limits<double>::infinity();
  for (const Label& label : found) {
    if (label.seconds >= fastest) continue;
    fastest = label.seconds;
    labels[end].push_back(label);
  }
}

std::vector<char> SegmentSeeds::solve(int64_t budget) const {
  std::vector<std::vector<Label>> labels(positions_.size());
  labels[0].emplace_back();
  for (int32_t end = 1; end < static_cast<int32_t>(positions_.size()); ++end) {
    extend(labels, end, budget);
  }
  if (labels.back().empty()) return {};
  auto end = static_cast<int32_t>(positions_.size()) - 1;
  // The last label is the fastest.
  Label label = labels[end].back();
  std::vector<char> keep = guides_.front().keep;
  std::vector<int32_t> boundaries;
  while (label.label >= 0) {
    for (int32_t node = positions_[label.position]; node < positions_[end]; ++node) {
      for (int32_t storage : model_.node_allocs[node]) {
        const int32_t id = model_.storages[storage].profile_storage;
        keep[id] = guides_[label.guide].keep[id];
      }
    }
    boundaries.push_back(label.position);
    end = label.position;
    label = labels[end][label.label];
  }
  for (int32_t boundary : boundaries) {
    for (const Crossing& crossing : crossing_[boundary]) {
      keep[model_.storages[crossing.storage].profile_storage] = 1;
    }
  }
  return keep;
}

}  // namespace remat
