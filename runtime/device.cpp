#include "runtime/device.h"

#include <array>
#include <atomic>

namespace remat::runtime {
namespace {

constexpr auto kTypes = static_cast<size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);

/// Constant-initialised: another file's static initialiser may come first.
std::array<std::atomic<const DeviceInterface*>, kTypes> g_devices{};

}  // namespace

void registerDevice(c10::DeviceType type, const DeviceInterface* device) {
  g_devices.at(static_cast<size_t>(type)) = device;
}

const DeviceInterface* findDevice(c10::DeviceType type) noexcept {
  const auto index = static_cast<size_t>(type);
  return index < kTypes ? g_devices[index].load(std::memory_order_acquire) : nullptr;
}

}  // namespace remat::runtime
