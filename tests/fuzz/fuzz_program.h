#pragma once

#include "tests/fuzz/program.h"
#include "tests/fuzz/trial.h"

namespace remat::fuzz {

/// The trial of a program. Throws what the TorchScript compiler throws.
Trial compile(const Program& program, uint64_t seed);

/// Compiles and runs; a program that doesn't compile is untrainable.
Outcome runProgram(const Program& program, uint64_t seed);

/// For people: the source, and the same as an IrCase.
std::string describe(const Program& program, uint64_t seed);

/// Registers `remat_fuzz::forgetful`, which doubles its input where gradients are off: a replay
/// gives other bytes than the forward did. Programs may recompute it: it is how the fuzzer itself
/// is tested.
void registerForgetful();

}  // namespace remat::fuzz
