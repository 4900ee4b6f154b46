#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "passes/options.h"

namespace remat::fuzz {

/// How a step is taken, the same way with the original and with the optimised model.
enum class Variant : uint8_t {
  kPlain,
  kRetainGraph,  ///< backward twice over one graph
  kGradient,     ///< autograd::grad of some parameters and the input
  kTwoForwards,  ///< two forwards, then their backwards, the first one first
  kDropped,      ///< a forward whose output is dropped, then a plain step
  kFirstOutput,  ///< only the first output has a gradient
  kSecondOrder,  ///< a backward through the gradients
  kOtherThread,  ///< backward in a thread of its own
  kCount,
};
const char* variantName(Variant variant);
/// Throws std::invalid_argument.
Variant variantNamed(const std::string& name);

/// Training a module as it is and optimised, side by side.
struct Trial {
  torch::jit::Module module;  ///< with `forward(self, x: Tensor)`
  uint64_t seed = 0;          ///< of x and of every step
  Budget budget;              ///< where it can't be met, the minimum
  Variant variant = Variant::kPlain;
  bool input_grad = false;           ///< x requires grad
  bool saved = false;                ///< the optimised model goes through an archive
  bool optimized_execution = false;  ///< of the optimised side; the original is always eager
  std::vector<std::string> allow_ops;
};

/// What of a trial follows from its seed.
Trial trialOf(torch::jit::Module module, uint64_t seed);

enum class Verdict : uint8_t {
  kUntrainable,  ///< the original doesn't run, or can't be trained
  kRefused,      ///< with an error that is meant for users
  kUnchanged,    ///< nothing to gain
  kSame,
  kDifferent,  ///< or an error where the original has none
  kCount,
};
const char* verdictName(Verdict verdict);

struct Outcome {
  Verdict verdict = Verdict::kSame;
  std::string detail;     ///< for people; of kRefused, kDifferent and kUntrainable
  int64_t replayed = 0;   ///< nodes that were recomputed in all steps
  std::string rewritten;  ///< IR of the optimised method, with notes
};

/// Optimises, then trains both for four calls with weight updates in between, and compares outputs,
/// gradients, buffers, the input's bytes and the next random draw after each, bit for bit; then in
/// evaluation mode. With `optimized_execution` values may be 1e-3 apart, relative to a tensor's
/// largest: TorchScript differentiates what is outside of regions by formulas of its own.
Outcome run(const Trial& trial);

}  // namespace remat::fuzz
