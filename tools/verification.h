#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "passes/options.h"
#include "tools/parity.h"

namespace remat::tools {

/// One side of a verification.
struct Side {
  torch::jit::Module module;
  std::string method;
};

/// What was measured of the original and of the optimised model.
struct Verification {
  Parity parity;  ///< TorchScript's optimisation off on both sides: the original is eager then
  Parity optimized_parity;       ///< with it on, for information
  int64_t original_peak = 0;     ///< bytes; the smaller of optimisation on and off
  int64_t optimized_peak = 0;    ///< bytes; the largest of all measured steps
  double original_seconds = 0;   ///< fastest step, optimisation on or off
  double optimized_seconds = 0;  ///< fastest step
  double recompute_share =
      0;  ///< time of replays over time of the forward, in the fastest step that was timed by node
};

/// Runs four training steps of both for parity, then `rounds` interleaved ones for peak and time.
/// Both sides start each comparison from the state they were loaded in and end in it.
Verification verifySides(const Side& original, const Side& optimized,
                         const std::vector<c10::IValue>& inputs, const StepOptions& step,
                         int rounds, const std::function<void(const std::string&)>& progress);

}  // namespace remat::tools
