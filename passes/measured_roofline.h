#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "ir/profile.h"

namespace remat {

/// What `device` does: operations per second of a large square matrix product of `dtype`, and bytes
/// per second (read and written) of copying a buffer that no cache holds; the median of several of
/// each, after a warm-up. `edge` is the matrices' size, `buffer` the bytes that are copied; they
/// are freed again.
ir::Roofline measureRoofline(c10::Device device, c10::ScalarType dtype, int64_t edge = 8192,
                             int64_t buffer = int64_t{1} << 29);

}  // namespace remat
