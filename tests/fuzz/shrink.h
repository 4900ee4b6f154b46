#pragma once

#include <functional>

#include "tests/fuzz/program.h"

namespace remat::fuzz {

/// Takes statements and outputs out of `program`, unwraps blocks, and repeats that as long as
/// `fails` holds for what is left. `fails(program)` has to hold. At most `attempts` calls of it.
Program shrink(Program program, const std::function<bool(const Program&)>& fails,
               int attempts = 2000);

}  // namespace remat::fuzz
