#pragma once

#include <set>
#include <string>

#include "ir/plan.h"
#include "passes/options.h"
#include "passes/planning_input.h"

namespace remat {

/// Whether `glob` matches the module `path` or a module around it: `layer1.*` and `layer1` match
/// `layer1.0.conv1`, `*.attn` matches `blocks.3.attn.proj`, and `*` what no module made, too.
bool matchesModule(const std::string& glob, const std::string& path);

/// What is wrong with OptimizeOptions::keep_modules and recompute_modules where the region's code
/// is of the modules `paths`: a glob matches nothing, or both lists match one module. Empty:
/// nothing.
std::string wrongChoice(const std::set<std::string>& paths, const OptimizeOptions& options);

/// Takes the decisions on storages that the chosen modules make: fills PlanningInput::forced. After
/// exposeInternals. What nodes of a module make is kept whole, internals included; views of it that
/// other modules take stay what they are.
void applyChoices(const OptimizeOptions& options, PlanningInput& input);

/// Makes `plan` say what forced storages become; a planner doesn't decide on them.
void settleChoices(const PlanningInput& input, ir::Plan& plan);

}  // namespace remat
