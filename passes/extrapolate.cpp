#include "passes/extrapolate.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "passes/evaluated_plan.h"
#include "passes/remat.h"

namespace remat {
namespace {

/// The line through two points.
class Line {
 public:
  Line(int64_t first, int64_t second, int64_t batch)
      : first_(first),
        second_(second),
        batch_(batch),
        share_(static_cast<double>(batch - first) / static_cast<double>(second - first)) {}

  double at(double first, double second) const { return first + share_ * (second - first); }
  int64_t at(int64_t first, int64_t second) const {
    return std::llround(std::max(0.0, at(static_cast<double>(first), static_cast<double>(second))));
  }
  /// A time is a part that is always there and one that grows with the batch, neither below zero:
  /// small steps are noisy, and the line through two of them can have a slope that no time has.
  double seconds(double first, double second) const {
    const double small = first_ < second_ ? first : second;
    const double large = first_ < second_ ? second : first;
    const auto growth = static_cast<double>(std::max(first_, second_)) /
                        static_cast<double>(std::min(first_, second_));
    if (large <= small) return (small + large) / 2;
    if (large > small * growth) {
      return large * static_cast<double>(batch_) / static_cast<double>(std::max(first_, second_));
    }
    return at(first, second);
  }

 private:
  int64_t first_;
  int64_t second_;
  int64_t batch_;
  double share_;
};

bool sameEvents(const std::vector<ir::Event>& a, const std::vector<ir::Event>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const ir::Event& x, const ir::Event& y) { return x.kind == y.kind && x.id == y.id; });
}

bool sameNode(const ir::NodeProfile& a, const ir::NodeProfile& b) {
  return a.program_index == b.program_index && a.inputs == b.inputs && a.outputs == b.outputs &&
         sameEvents(a.events, b.events);
}

template <typename Item, typename Same>
bool sameList(const std::vector<Item>& a, const std::vector<Item>& b, const Same& same) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool sameStructure(const ir::Profile& a, const ir::Profile& b) {
  return a.graph_hash == b.graph_hash && sameList(a.nodes, b.nodes, sameNode) &&
         sameList(a.slots, b.slots,
                  [](const ir::SlotProfile& x, const ir::SlotProfile& y) {
                    return x.node == y.node && x.value == y.value && x.storage == y.storage &&
                           x.cast_of == y.cast_of;
                  }) &&
         sameList(a.storages, b.storages,
                  [](const ir::StorageProfile& x, const ir::StorageProfile& y) {
                    return x.role == y.role;
                  }) &&
         sameList(a.backward, b.backward, [](const ir::BackwardStep& x, const ir::BackwardStep& y) {
           return x.node == y.node && sameEvents(x.events, y.events);
         });
}

}  // namespace

ir::Profile extrapolate(const BatchProfile& first, const BatchProfile& second, int64_t batch) {
  if (first.batch == second.batch) {
    throw RematError("two different batch sizes are needed to extrapolate, " +
                     std::to_string(first.batch) + " was given twice");
  }
  if (!sameStructure(first.profile, second.profile)) {
    throw RematError(
        "the step at batch " + std::to_string(first.batch) + " and the one at batch " +
        std::to_string(second.batch) +
        " do different things, so that none of another size can be derived; profile at batch " +
        std::to_string(batch) + " itself, or at two other sizes");
  }
  const Line line(first.batch, second.batch, batch);
  ir::Profile result = second.profile;
  const ir::Profile& other = first.profile;
  for (size_t i = 0; i < result.storages.size(); ++i) {
    result.storages[i].bytes =
        ir::roundedUp(line.at(other.storages[i].bytes, result.storages[i].bytes), result.rounding);
  }
  for (size_t i = 0; i < result.nodes.size(); ++i) {
    result.nodes[i].seconds = line.seconds(other.nodes[i].seconds, result.nodes[i].seconds);
  }
  for (size_t i = 0; i < result.backward.size(); ++i) {
    result.backward[i].seconds =
        line.seconds(other.backward[i].seconds, result.backward[i].seconds);
  }
  // A peak is the highest of many instants, and so follows a line only piece by piece.
  const int64_t first_peak = simulatedPeak(other);
  const int64_t second_peak = simulatedPeak(second.profile);
  const int64_t peak = simulatedPeak(result);
  const auto peakAt = [&](int64_t at_first, int64_t at_second) {
    const double beyond = line.at(static_cast<double>(at_first - first_peak),
                                  static_cast<double>(at_second - second_peak));
    return std::max<int64_t>(0, peak + std::llround(beyond));
  };
  result.peak_bytes = peakAt(other.peak_bytes, result.peak_bytes);
  result.baseline_peak_bytes = peakAt(other.baseline_peak_bytes, result.baseline_peak_bytes);
  result.step_seconds = line.seconds(other.step_seconds, result.step_seconds);
  result.extrapolated_from = {first.batch, second.batch};
  return result;
}

int64_t batchSize(const std::vector<c10::IValue>& inputs, int64_t dim) {
  for (const c10::IValue& input : inputs) {
    if (input.isTensor() && input.toTensor().defined() && dim >= 0 &&
        input.toTensor().dim() > dim) {
      return input.toTensor().size(dim);
    }
  }
  throw RematError("no input has a dimension " + std::to_string(dim) + " that could be the batch");
}

bool isBatched(const c10::IValue& input, int64_t dim, int64_t of) {
  return input.isTensor() && input.toTensor().defined() && input.toTensor().dim() > dim &&
         input.toTensor().size(dim) == of;
}

std::vector<c10::IValue> firstOfBatch(const std::vector<c10::IValue>& inputs, int64_t dim,
                                      int64_t of, int64_t batch) {
  std::vector<c10::IValue> result;
  result.reserve(inputs.size());
  for (const c10::IValue& input : inputs) {
    if (!isBatched(input, dim, of)) {
      result.push_back(input);
      continue;
    }
    const at::Tensor& tensor = input.toTensor();
    at::Tensor part = tensor.detach().narrow(dim, 0, batch).clone();
    result.emplace_back(part.requires_grad_(tensor.requires_grad()));
  }
  return result;
}

}  // namespace remat
