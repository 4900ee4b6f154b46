#pragma once

#include <cstddef>

namespace remat::runtime {

inline constexpr size_t kLargestSlot = 80;  ///< bytes

/// Memory for one saved slot, of at most kLargestSlot bytes. A step makes thousands of slots one
/// after the other on one thread, and its backward frees them on any: they lie together in blocks,
/// each of which is freed with its last slot.
void* allocateSlot();
void freeSlot(void* slot) noexcept;

}  // namespace remat::runtime
