#pragma once

// The public headers of an installed Remat: #include <remat/remat.h>. Beside libremat_runtime.so
// alone, take <remat/runtime/runtime.h>, if anything.

#include "passes/activation_checkpointing.h"
#include "passes/options.h"
#include "passes/register_pass.h"
#include "passes/remat.h"
#include "runtime/runtime.h"
