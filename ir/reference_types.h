#pragma once

#include <ATen/core/jit_type_base.h>

namespace remat::ir {

/// Whether a value of this type refers to something that others may refer to as well: a tensor, a
/// list, an object, or a tuple or optional of such.
bool isReference(const c10::Type& type);

/// Whether attributes may be reached through a value of this type.
bool mayHoldObjects(const c10::Type& type);

/// A list, dict or tuple.
bool isContainer(const c10::Type& type);

}  // namespace remat::ir
