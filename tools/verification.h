#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
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

/// How results are compared.
struct Comparing {
  int steps = 4;
  /// See compareSteps. Not given: results have to have the same bits, but for an original that has
  /// other bits itself when it is run again: there kDefaultTolerance is granted.
  std::optional<double> tolerance;
};

/// Whether two models train alike.
struct Verdict {
  Parity parity;     ///< TorchScript's optimisation off on both sides: the original is eager then
  bool same = true;  ///< parity is as good as it has to be
  bool deterministic = true;  ///< false: the original's own kernels gave other bits in a second run
  /// Above 0: the original is as far from itself in a second run, beyond the tolerance, so that
  /// nothing can be said of the other model.
  double own_difference = 0;
  std::string first_difference;  ///< see firstDifference; empty where all is bitwise equal
};

/// What was measured of the original and of the optimised model.
struct Verification {
  Verdict verdict;
  Parity optimized_parity;  ///< with TorchScript's optimisation on, for information
  /// With it on the original can't be trained, for this reason: it is compared and measured without
  /// alone, and the optimised model too if the same holds of it. Empty: it can.
  std::string original_error;
  /// Bytes: the original's smallest peak, with optimisation on or off, and the other's largest.
  int64_t original_peak = std::numeric_limits<int64_t>::max();
  int64_t optimized_peak = 0;
  /// The fastest steps; of the original with optimisation on or off.
  double original_seconds = std::numeric_limits<double>::infinity();
  double optimized_seconds = std::numeric_limits<double>::infinity();
  double recompute_share = 0;  ///< time of the fastest step's replays over that of the forward
};

using ShowProgress = std::function<void(const std::string&)>;

/// Trains both for some steps with TorchScript's optimisation off. The modules' state is set back.
Verdict compareModules(const torch::jit::Module& original, const torch::jit::Module& optimized,
                       const std::string& method, const std::vector<c10::IValue>& inputs,
                       const StepOptions& step, const Comparing& comparing,
                       const ShowProgress& progress);

/// Compares the two, then runs `rounds` interleaved steps of both for peak and time. Each
/// comparison starts from the state that was loaded; the modules' buffers move on.
Verification verifySides(const Side& original, const Side& optimized,
                         const std::vector<c10::IValue>& inputs, const StepOptions& step,
                         const Comparing& comparing, int rounds, const ShowProgress& progress);

}  // namespace remat::tools
