#pragma once

#include <vector>

#include "ir/profile.h"

namespace remat::runtime {

/// The last of several recordings of one step, with the median of every node's times. (Not the
/// shortest: an operator that is limited by memory is fast when it is lucky, and a planner picks
/// the lucky ones.) The step's own time is the shortest.
ir::Profile withMedianTimes(std::vector<ir::Profile> recordings);

}  // namespace remat::runtime
