#include "runtime/slot_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace remat::runtime::test {
namespace {

constexpr int kSlots = 1000;

std::vector<unsigned char*> filled(unsigned char byte) {
  std::vector<unsigned char*> slots;
  for (int i = 0; i < kSlots; ++i) {
    slots.push_back(static_cast<unsigned char*>(allocateSlot()));
    std::memset(slots.back(), byte, kLargestSlot);
  }
  return slots;
}

bool holds(const unsigned char* slot, unsigned char byte) {
  return std::all_of(slot, slot + kLargestSlot, [&](unsigned char c) { return c == byte; });
}

TEST(SlotMemory, SlotsAreAlignedAndTheirOwn) {
  const auto slots = filled(1);
  EXPECT_EQ(std::set<unsigned char*>(slots.begin(), slots.end()).size(), slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slots[i]) % alignof(std::max_align_t), 0U);
    std::memset(slots[i], static_cast<int>(i % 100 + 2), kLargestSlot);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_TRUE(holds(slots[i], static_cast<unsigned char>(i % 100 + 2))) << i;
    freeSlot(slots[i]);
  }
}

/// As the engine's threads do, while others make slots, and after the thread that made them ended.
TEST(SlotMemory, AnyThreadMayFreeInAnyOrder) {
  std::vector<unsigned char*> slots;
  std::thread([&] { slots = filled(7); }).join();
  std::shuffle(slots.begin(), slots.end(), std::mt19937(1));
  const auto half = slots.begin() + kSlots / 2;
  const auto freeThem = [](auto begin, auto end) {
    for (auto slot = begin; slot != end; ++slot) {
      EXPECT_TRUE(holds(*slot, 7));
      freeSlot(*slot);
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { freeThem(slots.begin(), half); });
  threads.emplace_back([&] { freeThem(half, slots.end()); });
  threads.emplace_back([] {
    for (unsigned char* slot : filled(9)) freeSlot(slot);
  });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace remat::runtime::test
