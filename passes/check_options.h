#pragma once

#include "passes/options.h"

namespace remat {

/// Throws RematError where `budget` is no amount of memory: a share outside of (0, 1], no bytes.
void checkBudget(const Budget& budget);

/// The same of `options.budget`, and of every other number and name that can be wrong by itself.
void checkOptions(const OptimizeOptions& options);

}  // namespace remat
