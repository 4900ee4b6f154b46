#pragma once

#include "runtime/region_program.h"

namespace remat::runtime {

/// Fills dead_after and dead_on_entry: after which node, or on entering which arm, each value is
/// used no more. A value whose last use lies in one arm of a branch dies there, and on entering the
/// other.
void addDeaths(RegionProgram& program);

/// Fills recomputes, recomputable, replay_inputs, boundary and boundaries_ending from `kept`.
void addBoundaries(RegionProgram& program);

}  // namespace remat::runtime
