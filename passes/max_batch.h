#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "passes/remat.h"

namespace remat {

/// The largest batch whose training step is predicted to fit.
struct MaxBatch {
  int64_t batch = 0;
  int64_t without_remat = 0;  ///< the largest that fits as the model is; 0: none
  std::vector<int64_t> from;  ///< the two batches that were recorded
  ir::Profile profile;        ///< extrapolated to the inputs' own batch
  ir::Plan plan;              ///< at `batch`; its budget is what was left for the step there
};

/// Bytes of the step peak that a batch may take; never more for a larger batch.
using BatchBudget = std::function<int64_t(int64_t batch)>;

/// Records `options.profile_batches`, extrapolates from them to other batches, and searches for the
/// largest one with a plan within the budget. First the plan with the lowest peak of the inputs'
/// own batch is stretched as far as it goes, then plans are made beyond. Throws BudgetError if not
/// even a batch of one fits.
MaxBatch maxBatch(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                  const OptimizeOptions& options, const BatchBudget& budget);

/// The two batches to record where none are given: 2 and 4, or 1 and 2 of smaller inputs.
std::vector<int64_t> defaultProfileBatches(const std::vector<c10::IValue>& inputs, int64_t dim);

/// The inputs' sizes at another batch: tensors without data.
std::vector<c10::IValue> shapesAtBatch(const std::vector<c10::IValue>& inputs, int64_t dim,
                                       int64_t batch);

}  // namespace remat
