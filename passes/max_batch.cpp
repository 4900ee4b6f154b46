#include "passes/max_batch.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "passes/choices.h"
#include "passes/extrapolate.h"
#include "passes/planner.h"

namespace remat {
namespace {

/// Beyond this a step is taken not to grow with its batch.
constexpr int64_t kMost = int64_t{1} << 24;
/// The stretched plan's batch is raised by so many shares of it at a time.
constexpr int64_t kSteps = 16;

Analysis atBatch(const Analysis& analysis, int64_t batch, const OptimizeOptions& options) {
  Analysis result = analysis;
  result.profile = extrapolate(analysis.recorded.at(0), analysis.recorded.at(1), batch);
  result.original_peak = result.profile.baseline_peak_bytes;
  result.minimum_bytes = options.minimumFor(result.original_peak);
  return result;
}

/// The largest batch from `low`, which fits, to `high`, which doesn't.
template <typename Fits>
int64_t bisect(int64_t low, int64_t high, const Fits& fits) {
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

/// The largest batch that fits, where every smaller one does; 0: none.
template <typename Fits>
int64_t largest(const Fits& fits) {
  int64_t high = 1;
  while (high < kMost && fits(high)) high *= 2;
  return bisect(high / 2, high, fits);
}

}  // namespace

MaxBatch maxBatch(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                  const OptimizeOptions& options, const BatchBudget& budget) {
  const Analysis analysis = analyze(module, inputs, options);
  MaxBatch result;
  result.from = options.profile_batches;
  result.profile = analysis.profile;
  result.without_remat = largest([&](int64_t batch) {
    return atBatch(analysis, batch, options).original_peak <= budget(batch);
  });

  const PlanningInput here = planningInput(analysis, options);
  const ir::Plan lowest = Planner(here).minimum();
  const SavedPlan stretched = savedPlan(here, lowest);
  // Sizes must not decide on what the stretched plan is.
  OptimizeOptions any_size = options;
  any_size.minimum_bytes = 1;
  if (options.progress) options.progress("looking for the largest batch");
  const auto planned = [&](int64_t batch) {
    const PlanningInput input = planningInput(atBatch(analysis, batch, options), options);
    ir::Plan plan = Planner(input).plan(budget(batch));
    settleChoices(input, plan);
    return plan;
  };
  const auto stretchedTo = [&](int64_t batch) {
    return planOf(stretched, planningInput(atBatch(analysis, batch, any_size), any_size));
  };
  const auto keep = [&](int64_t batch) {
    ir::Plan plan = planned(batch);
    // A search may miss what is known to fit.
    if (plan.predicted_peak > budget(batch)) {
      plan = stretchedTo(batch);
      plan.lower_bound_share = plan.lower_bound_seconds = 0;  // proved for another batch
    }
    const bool fits = plan.predicted_peak <= budget(batch);
    if (fits && batch > result.batch) {
      result.batch = batch;
      result.plan = std::move(plan);
      result.plan.budget = budget(batch);
    }
    return fits;
  };
  int64_t low =
      largest([&](int64_t batch) { return stretchedTo(batch).predicted_peak <= budget(batch); });
  low = std::max(low, result.without_remat);
  while (low > 0 && !keep(low)) low = low * (kSteps - 1) / kSteps;
  const int64_t step = std::max<int64_t>(1, low / kSteps);
  int64_t high = low + step;
  while (high < kMost && keep(high)) {
    low = high;
    high += step;
  }
  bisect(low, high, keep);
  if (result.batch >= kMost) {
    throw RematError("a batch of " + std::to_string(kMost) +
                     " fits, and no larger one is looked for; give less memory");
  }
  if (result.batch == 0) {
    const int64_t peak = planned(1).predicted_peak;
    throw BudgetError("not even a batch of 1 fits: " +
                          ir::formatBytes(std::max<int64_t>(0, budget(1)), ir::Rounding::kDown) +
                          " are there for its step, and the lowest reachable peak is " +
                          ir::formatBytes(peak, ir::Rounding::kUp) + ", predicted; give " +
                          ir::formatBytes(peak - budget(1), ir::Rounding::kUp) + " more",
                      peak);
  }
  return result;
}

std::vector<int64_t> defaultProfileBatches(const std::vector<c10::IValue>& inputs, int64_t dim) {
  const int64_t batch = batchSize(inputs, dim);
  if (batch < 2) {
    throw RematError("two batches are needed to extrapolate from, and the inputs have one of " +
                     std::to_string(batch) + "; give inputs of a batch of 4 or more");
  }
  return batch < 4 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 4};
}

std::vector<c10::IValue> shapesAtBatch(const std::vector<c10::IValue>& inputs, int64_t dim,
                                       int64_t batch) {
  const int64_t of = batchSize(inputs, dim);
  std::vector<c10::IValue> result;
  for (const c10::IValue& input : inputs) {
    if (!isBatched(input, dim, of)) {
      result.push_back(input);
      continue;
    }
    std::vector<int64_t> sizes = input.toTensor().sizes().vec();
    sizes[dim] = batch;
    result.emplace_back(at::empty(sizes, input.toTensor().options().device(at::kMeta)));
  }
  return result;
}

}  // namespace remat
