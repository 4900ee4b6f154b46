#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "ir/profile.h"

namespace remat {

/// A profile and the batch size that it was recorded at.
struct BatchProfile {
  int64_t batch = 0;
  ir::Profile profile;
};

/// The profile of a step at `batch`, for a model that is too big to run there, from two smaller
/// ones: every storage's bytes and every time is taken to be affine in the batch, times without a
/// negative part. Peaks are simulated with these bytes; how far measured ones are from that is
/// affine again. Throws RematError if the two steps do not have the same structure (nodes, saved
/// slots, storages and events in the same order): then nothing can be said of a third.
ir::Profile extrapolate(const BatchProfile& first, const BatchProfile& second, int64_t batch);

/// The size of dimension `dim` of the first tensor among `inputs`: the batch. Throws RematError if
/// there is no tensor with such a dimension.
int64_t batchSize(const std::vector<c10::IValue>& inputs, int64_t dim);

/// Whether dimension `dim` of `input` is the batch of `of`: it is a tensor with so many entries
/// there.
bool isBatched(const c10::IValue& input, int64_t dim, int64_t of);

/// `inputs` with the first `batch` entries along `dim` of each tensor that has `of` of them.
std::vector<c10::IValue> firstOfBatch(const std::vector<c10::IValue>& inputs, int64_t dim,
                                      int64_t of, int64_t batch);

}  // namespace remat
