#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/profile.h"

namespace remat {

/// What CUDA's caching allocator rounds requests to, bytes: kMinBlockSize of
/// c10/cuda/CUDACachingAllocator.h. (Of a large block up to 1 MiB may be left unsplit beyond that,
/// which nothing here foretells.)
constexpr int64_t kCudaRounding = 512;

/// Bytes that requests are counted in multiples of on `device` (`cpu`, `cuda:0`): 1 on the CPU,
/// where sizes are counted as requested.
int64_t allocationRounding(const std::string& device);

/// A profile recorded on the CPU as that of the same step on `device`. Every storage's bytes are
/// rounded as the allocator there counts them, peaks are simulated anew with these (how far the
/// measured ones were from the simulation stays), and every time is replaced by what `roofline`
/// says. What is saved, allocated and freed, and when, is taken to be the same: see otherInternals.
///
/// Throws RematError where `profile` was extrapolated (its shapes are those of another batch) or
/// where it is not of the CPU.
ir::Profile retarget(const ir::Profile& profile, const std::string& device,
                     const ir::Roofline& roofline);

/// Operators of a retargeted profile whose CUDA kernels save or take other bytes beside their
/// tensors than the CPU's: what cuDNN keeps for a batch norm's backward, random seeds and logsumexp
/// of fused attention, the reserve of an RNN, ... Distinct, by name; their scratch differs anyway.
std::vector<std::string> otherInternals(const ir::Profile& profile);

}  // namespace remat
