#pragma once

#include "runtime/statistics.h"

namespace remat::runtime {

/// Registers nothing and does nothing: a program that links the runtime statically and refers to it
/// by no other name calls this once, so that its operators are there.
void initialize();

}  // namespace remat::runtime
