#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "passes/options.h"
#include "tools/parity.h"

namespace remat::tools {

/// One side of a verification: the same file loaded twice. An executor that has once made an
/// optimised plan uses it with the optimisation off, too, also those of submodules that copies of a
/// module share.
struct Side {
  torch::jit::Module eager_execution;
  torch::jit::Module optimized_execution;
  std::string method;
};

/// What was measured of the original and of the optimised model.
struct Verification {
  Parity parity;  ///< TorchScript's optimisation off on both sides: the original is eager then
  Parity optimized_parity;  ///< with it on, for information
  /// Bytes: the original's smallest peak, with optimisation on or off, and the other's largest.
  int64_t original_peak = std::numeric_limits<int64_t>::max();
  int64_t optimized_peak = 0;
  /// The fastest steps; of the original with optimisation on or off.
  double original_seconds = std::numeric_limits<double>::infinity();
  double optimized_seconds = std::numeric_limits<double>::infinity();
  double recompute_share = 0;  ///< time of the fastest step's replays over that of the forward
};

/// Runs four training steps of both for parity, then `rounds` interleaved ones for peak and time.
/// Each comparison starts from the state that was loaded; the modules' buffers move on.
Verification verifySides(const Side& original, const Side& optimized,
                         const std::vector<c10::IValue>& inputs, const StepOptions& step,
                         int rounds, const std::function<void(const std::string&)>& progress);

}  // namespace remat::tools
