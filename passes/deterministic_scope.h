#pragma once

#include <string>
#include <vector>

#include "ir/profile.h"

namespace remat {

/// With `on`, deterministic algorithms as torch.use_deterministic_algorithms(True) turns them on:
/// operators that have none raise an error, cuDNN takes deterministic kernels alone and doesn't
/// choose them by trying. Put back when the scope ends.
class DeterministicScope {
 public:
  explicit DeterministicScope(bool on);
  ~DeterministicScope();
  DeterministicScope(const DeterministicScope&) = delete;
  DeterministicScope& operator=(const DeterministicScope&) = delete;

 private:
  bool on_;
  bool algorithms_ = false;
  bool warn_only_ = false;
  bool cudnn_ = false;
  bool benchmark_ = false;
};

/// Operators of `profile` that have CUDA kernels, in forward or backward, whose results can differ
/// in their last bits from run to run: those that torch.use_deterministic_algorithms documents,
/// convolutions (cuDNN) and fused attention. Distinct, by name; empty for the CPU.
std::vector<std::string> nondeterministicOps(const ir::Profile& profile);

}  // namespace remat
