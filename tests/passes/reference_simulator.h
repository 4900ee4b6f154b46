#pragma once

#include <vector>

#include "passes/planning_input.h"
#include "passes/simulator.h"

namespace remat::testing {

/// The same step, executed the slow way: storages are shared pointers, holders hold them, and needs
/// are counted by recursion from their definition. What the simulator is compared with.
Evaluation simulateByReference(const PlanningInput& input, const std::vector<char>& keep);

}  // namespace remat::testing
