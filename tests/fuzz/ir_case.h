#pragma once

#include <string>

#include "tests/fuzz/trial.h"

namespace remat::fuzz {

/// A trial as text that IrCase files hold: its settings as comments, then the inlined graph of
/// `forward`, with self as %self : Any.
std::string toIr(const Trial& trial);

/// The trial that `text` holds; attributes are made by moduleFor. Throws std::exception where it is
/// none.
Trial trialFromIr(const std::string& text);

}  // namespace remat::fuzz
