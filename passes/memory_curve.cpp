#include "passes/memory_curve.h"

#include <algorithm>

namespace remat {

MemoryCurve::MemoryCurve(const SimulationModel& model)
    : instants_(model.nodes.size() + model.backward.size()),
      blocks_((instants_.size() + kBlock - 1) / kBlock) {
  auto instant = instants_.begin();
  for (const SimulationModel::Node& node : model.nodes) {
    instant->peak = node.forward.peak;
    (instant++)->first = node.forward.delta;
  }
  for (const SimulationModel::BackwardOp& op : model.backward) {
    instant->peak = op.before.peak;
    (instant++)->first = op.before.delta;
  }
  for (size_t block = 0; block < blocks_.size(); ++block) {
    stale_.push_back(static_cast<int32_t>(block));
  }
}

void MemoryCurve::add(Point point, int64_t bytes) {
  if (point.instant >= static_cast<int32_t>(instants_.size())) return;
  Instant& instant = instants_[point.instant];
  if (point.step < static_cast<int32_t>(instant.steps.size())) {
    instant.steps[point.step].delta += bytes;
  } else {
    instant.last += bytes;
  }
  markStale(point.instant);
}

void MemoryCurve::setSteps(int32_t instant, llvm::ArrayRef<Step> steps) {
  instants_[instant].steps.assign(steps.begin(), steps.end());
  markStale(instant);
}

void MemoryCurve::markStale(int32_t instant) {
  Block& block = blocks_[instant / kBlock];
  if (!block.stale) stale_.push_back(instant / kBlock);
  block.stale = true;
}

void MemoryCurve::refresh(size_t block) {
  const size_t end = std::min(instants_.size(), (block + 1) * kBlock);
  int64_t peak = std::numeric_limits<int64_t>::min();
  int64_t live = 0;
  for (size_t i = block * kBlock; i < end; ++i) {
    live = visit(instants_[i], live, [&](int64_t bytes) { peak = std::max(peak, bytes); });
  }
  blocks_[block] = {peak, live, false};
}

void MemoryCurve::measure(int64_t soft_peak, Evaluation& result) {
  for (int32_t block : stale_) refresh(block);
  stale_.clear();
  size_t highest = 0;
  int64_t before_highest = 0;
  int64_t live = 0;
  result.peak = 0;
  result.peak_instant = 0;
  result.excess = 0;
  for (size_t block = 0; block < blocks_.size(); live += blocks_[block++].delta) {
    const int64_t peak = live + blocks_[block].peak;
    if (peak > result.peak) {
      result.peak = peak;
      highest = block;
      before_highest = live;
    }
    if (peak <= soft_peak) continue;
    int64_t inside = live;
    const size_t end = std::min(instants_.size(), (block + 1) * kBlock);
    for (size_t i = block * kBlock; i < end; ++i) {
      inside = visit(instants_[i], inside, [&](int64_t bytes) {
        result.excess += std::max<int64_t>(0, bytes - soft_peak);
      });
    }
  }
  live = before_highest;
  for (size_t i = highest * kBlock; i < instants_.size(); ++i) {
    bool found = false;
    live = visit(instants_[i], live, [&](int64_t bytes) { found |= bytes == result.peak; });
    if (!found) continue;
    result.peak_instant = static_cast<int32_t>(i);
    return;
  }
}

std::vector<int64_t> MemoryCurve::peaks() const {
  std::vector<int64_t> peaks;
  peaks.reserve(instants_.size());
  int64_t live = 0;
  for (const Instant& instant : instants_) {
    int64_t peak = 0;
    live = visit(instant, live, [&](int64_t bytes) { peak = std::max(peak, bytes); });
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace remat
