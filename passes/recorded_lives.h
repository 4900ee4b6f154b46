#pragma once

#include <cstdint>
#include <vector>

#include "ir/profile.h"

namespace remat {

/// From its allocation to its release, in a profile's positions: nodes first, then steps of the
/// backward; -1: not in the step.
struct Life {
  int32_t from = -1;
  int32_t until = -1;
};

/// By storage, as recorded; of use for what no decision changes.
std::vector<Life> recordedLives(const ir::Profile& profile);

}  // namespace remat
