#pragma once

#include <cstdint>

#include "tests/fuzz/program.h"

namespace remat::fuzz {

/// A random program: linear algebra, convolutions, norms, attention, dropout, views and slices,
/// in-place writes (through views as well), branches, loops, lists, dicts, no_grad blocks and
/// attribute writes. The same seed gives the same program. Some don't run, or can't be trained:
/// eager execution tells.
///
/// `forgetful` also uses `remat_fuzz::forgetful`, an operator that gives other bytes in each call.
Program randomProgram(uint64_t seed, bool forgetful = false);

}  // namespace remat::fuzz
