#pragma once

#include "ir/annotations.h"
#include "ir/plan.h"
#include "ir/remark.h"
#include "passes/planning_input.h"

namespace remat {

/// What dumps and reports say of a planned region: for each storage that the backward asks for, on
/// its root value, whether it is kept or recomputed, its bytes, why, and where it comes from.
std::map<std::string, ir::ValueNote> valueNotes(const PlanningInput& input, const ir::Plan& plan,
                                                const std::vector<ir::Remark>& remarks);

/// The reasons of the remarks on one place in the model, as `in-place-write, random`.
std::string refusals(const std::vector<ir::Remark>& remarks, const ir::NodeProfile& node);

}  // namespace remat
