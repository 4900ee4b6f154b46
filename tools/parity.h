#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "passes/training_step.h"

namespace remat::tools {

/// How two tensors, or everything of a kind, compare; the worse has the higher number.
enum class Match : uint8_t {
  kBitwise,    ///< the same bits, NaN payloads and signs of zero included
  kClose,      ///< within the tolerance
  kDifferent,  ///< beyond it, or of another number, shape or dtype
};

/// `bitwise`, `close` or `different`.
const char* matchName(Match match);

/// What a comparison of training steps found, the worst over all steps.
struct Parity {
  Match outputs = Match::kBitwise;
  Match gradients = Match::kBitwise;
  Match buffers = Match::kBitwise;
  Match random_state = Match::kBitwise;
  /// The largest |a - b| over what its tolerance is relative to, see compareSteps; 0 where all is
  /// bitwise equal.
  double max_difference = 0;

  Match worst() const;
};

constexpr double kDefaultTolerance = 1e-5;

/// Compares one step of the original with one of the optimised model and adds to `parity`.
/// `tolerance` is relative to the tensor's largest value; of gradients, to the larger of that and a
/// hundredth of the largest gradient of all, since some gradients are rounding noise.
void compareSteps(const StepOutcome& original, const StepOutcome& optimized, double tolerance,
                  Parity& parity);

}  // namespace remat::tools
