#include "runtime/memory_statistics.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace remat::runtime {
namespace {

/// What is known of the allocations made since the installation. Never destroyed: tensors with
/// static lifetime are freed after every other destructor has run.
struct State {
  std::mutex mutex;
  std::unordered_map<const void*, size_t> sizes;
  int64_t live = 0;
  int64_t peak = 0;
  AllocationListener* listener = nullptr;
  c10::Allocator* base = nullptr;
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

void recordAllocation(const void* data, size_t bytes) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.sizes.emplace(data, bytes);
  s.live += static_cast<int64_t>(bytes);
  s.peak = std::max(s.peak, s.live);
  if (s.listener != nullptr) s.listener->allocated(data, bytes);
}

void recordFree(const void* data) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.sizes.find(data);
  if (found == s.sizes.end()) return;  // from before the installation
  const size_t bytes = found->second;
  s.sizes.erase(found);
  s.live -= static_cast<int64_t>(bytes);
  if (s.listener != nullptr) s.listener->freed(data, bytes);
}

/// The record goes before the bytes: another thread may be handed the same address at once.
void deleteCounted(void* data) {
  if (data == nullptr) return;
  recordFree(data);
  state().base->raw_deallocate(data);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr pointer = state().base->allocate(bytes);
    void* const data = pointer.get();
    if (data == nullptr) return pointer;
    recordAllocation(data, bytes);
    const c10::Device device = pointer.device();
    // Data and context are the same address, as raw_allocate requires.
    pointer.release_context();
    return {data, data, &deleteCounted, device};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &deleteCounted; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    state().base->copy_data(dest, src, count);
  }
};

}  // namespace

void installMemoryStatistics() {
  static const bool installed = [] {
    state().base = c10::GetAllocator(c10::kCPU);
    TORCH_CHECK(state().base->raw_deleter() != nullptr,
                "LibTorch's CPU allocator can't be counted: it has no raw deleter");
    static auto* const allocator = new CountingAllocator;
    constexpr uint8_t kAboveDefault = 1;
    c10::SetAllocator(c10::kCPU, allocator, kAboveDefault);
    TORCH_CHECK(c10::GetAllocator(c10::kCPU) == allocator,
                "the CPU allocator was replaced by another library: peaks can't be measured");
    return true;
  }();
  (void)installed;
}

int64_t liveBytes() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().live;
}

int64_t peakBytes() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().peak;
}

void resetPeak() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().peak = state().live;
}

int64_t allocatedBytes(const void* data) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const auto found = state().sizes.find(data);
  return found == state().sizes.end() ? -1 : static_cast<int64_t>(found->second);
}

void setAllocationListener(AllocationListener* listener) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().listener = listener;
}

}  // namespace remat::runtime
