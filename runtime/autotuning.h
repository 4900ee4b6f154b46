#pragma once

#include <c10/core/Device.h>

#include <string>

namespace remat::runtime {

/// cuDNN's autotuning (`torch.backends.cudnn.benchmark`) times a convolution's algorithms and keeps
/// the fastest, each thread for itself. The forward runs on one thread, a replay mostly on the
/// engine's: they may keep different algorithms, which round differently.
///
/// Call for an operator `op` (`aten::conv2d`) at `where` on `device` whose result may be
/// recomputed. Throws c10::Error if autotuning can do that while deterministic algorithms are asked
/// for
/// (`torch.use_deterministic_algorithms`, `torch.backends.cudnn.deterministic`); warns, once a
/// process, if it can else.
void checkAutotuning(const std::string& op, const std::string& where, c10::Device device);

}  // namespace remat::runtime
