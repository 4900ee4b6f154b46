#pragma once

#include <vector>

#include "ir/plan.h"
#include "passes/simulator.h"

namespace remat {

/// What a step under the decisions `keep` takes, by the simulator: peak, recompute time, its share
/// of `forward_seconds`, and how many storages are kept and recomputed. Budget, bounds and planning
/// time are the caller's. Cost: one trace.
ir::Plan evaluatedPlan(Simulator& simulator, const std::vector<char>& keep, double forward_seconds);

/// The peak of a profile's step with everything kept, bytes.
int64_t simulatedPeak(const ir::Profile& profile);

}  // namespace remat
