#pragma once

#include <cstdint>
#include <vector>

#include "ir/plan.h"
#include "passes/planning_input.h"

namespace remat {

/// The values (program ids) whose `remat::keep` marks make a region behave as `plan` says: the root
/// of every storage that is kept, and every value that the profiled step did not execute (what was
/// not seen is kept). In ascending order.
std::vector<int32_t> marksOf(const PlanningInput& input, const ir::Plan& plan);

/// The values for `remat::drop` marks: every one that holds a storage which is recomputed for each
/// use, in ascending order.
std::vector<int32_t> droppedValues(const PlanningInput& input, const ir::Plan& plan);

/// By storage: whether a backward recomputes it under `plan`; what no slot and no replay needs is
/// not recomputed although it is not kept either.
std::vector<char> recomputedStorages(const PlanningInput& input, const ir::Plan& plan);

/// By storage: the first value that holds it; -1: none.
std::vector<int32_t> storageRoots(const ir::Profile& profile);

}  // namespace remat
