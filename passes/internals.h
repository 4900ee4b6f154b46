#pragma once

#include <cstdint>
#include <vector>

#include "ir/plan.h"
#include "passes/planning_input.h"

namespace remat {

/// Makes what operators save inside of themselves (copies that matmul makes, a pooling's indices) a
/// decision of the planner. For each replayable node with such internals of `minimum_bytes` or more
/// together, the profile gets one value more, made and last used by that node, that stands for all
/// of them; their storages become one, allocated with the first and released with the last.
/// Recomputing it means to run the node again (`remat::regenerate`).
///
/// The added values have the ids from `PlanningInput::first_internal` on. Internals that another
/// node saved too, or that were allocated elsewhere, stay what they are: kept.
void exposeInternals(PlanningInput& input);

/// The first result that is a tensor of the node that saved `internal`, one of the added values:
/// what marks and files know the node by; -1: none.
int32_t resultBeside(const PlanningInput& input, int32_t internal);

/// The values whose nodes `plan` wants to regenerate the internals of: for each its first result
/// that is a tensor. Ids and order as in marksOf.
std::vector<int32_t> regeneratedValues(const PlanningInput& input, const ir::Plan& plan);

}  // namespace remat
