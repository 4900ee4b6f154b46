#include "runtime/slot_memory.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace remat::runtime {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int32_t kSlotsOfBlock = 1;  // a slot that is used after its end is to be seen
#else
constexpr int32_t kSlotsOfBlock = 42;  // with these a block takes 4 KiB
#endif

struct Block;

struct Cell {
  Block* block;
  alignas(std::max_align_t) std::array<std::byte, kLargestSlot> bytes;
};

struct Block {
  std::atomic<int32_t> left{kSlotsOfBlock};  ///< alive, or not given out yet
  int32_t given = 0;
  std::array<Cell, kSlotsOfBlock> cells;

  void release(int32_t count) {
    if (left.fetch_sub(count, std::memory_order_acq_rel) == count) delete this;
  }
};

/// The block that a thread takes slots from; none once it has given out its last.
struct Current {
  Block* block = nullptr;

  Current() = default;
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    if (block != nullptr) block->release(kSlotsOfBlock - block->given);
    block = nullptr;
  }
};

thread_local Current t_current;

}  // namespace

void* allocateSlot() {
  Block*& block = t_current.block;
  if (block == nullptr) block = new Block;
  Cell& cell = block->cells[block->given++];
  cell.block = block;
  if (block->given == kSlotsOfBlock) block = nullptr;
  return cell.bytes.data();
}

void freeSlot(void* slot) noexcept {
  const auto* cell = reinterpret_cast<Cell*>(static_cast<std::byte*>(slot) - offsetof(Cell, bytes));
  cell->block->release(1);
}

}  // namespace remat::runtime
