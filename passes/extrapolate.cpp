#include "passes/extrapolate.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "passes/remat.h"

namespace remat {
namespace {

/// The line through two points.
class Line {
 public:
  Line(int64_t first, int64_t second, int64_t batch)
      : share_(static_cast<double>(batch - first) / static_cast<double>(second - first)) {}

  double at(double first, double second) const { return first + share_ * (second - first); }
  int64_t at(int64_t first, int64_t second) const {
    return std::llround(std::max(0.0, at(static_cast<double>(first), static_cast<double>(second))));
  }
  double seconds(double first, double second) const { return std::max(0.0, at(first, second)); }

 private:
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
                    return x.node == y.node && x.value == y.value && x.storage == y.storage;
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
    result.storages[i].bytes = line.at(other.storages[i].bytes, result.storages[i].bytes);
  }
  for (size_t i = 0; i < result.nodes.size(); ++i) {
    result.nodes[i].seconds = line.seconds(other.nodes[i].seconds, result.nodes[i].seconds);
  }
  for (size_t i = 0; i < result.backward.size(); ++i) {
    result.backward[i].seconds =
        line.seconds(other.backward[i].seconds, result.backward[i].seconds);
  }
  result.peak_bytes = line.at(other.peak_bytes, result.peak_bytes);
  result.baseline_peak_bytes = line.at(other.baseline_peak_bytes, result.baseline_peak_bytes);
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
