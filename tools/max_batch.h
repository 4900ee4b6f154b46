#pragma once

#include <string>
#include <vector>

#include "passes/options.h"
#include "tools/common_options.h"

namespace remat::tools {

/// What `plan --max-batch` was asked for.
struct MaxBatchRequest {
  std::vector<std::string> budgets;  ///< at most one, in bytes
  bool json = false;
};

/// Throws ToolError (usage) where the options don't go together.
void checkMaxBatch(const MaxBatchRequest& request, const PlanningOptions& planning);

/// Finds the largest batch that fits and prints it.
void printMaxBatch(const MaxBatchRequest& request, const PlanningOptions& planning,
                   const Session& session, OptimizeOptions options);

}  // namespace remat::tools
