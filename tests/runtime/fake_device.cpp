#include "tests/runtime/fake_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

namespace remat::testing {
namespace {

std::atomic<int64_t> g_queued{0};
std::atomic<int64_t> g_done{0};
std::atomic<int64_t> g_synchronisations{0};
std::atomic<int64_t> g_events{0};

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = c10::DeviceType::PrivateUse1;

  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return {static_type, 0}; }
  c10::Device getDevice() const override { return {static_type, 0}; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  void record(void** event, const c10::Stream& /*stream*/, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) {
      *event = new int64_t;
      ++g_events;
    }
    *static_cast<int64_t*>(*event) = g_queued;
  }
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* event) const override { return *static_cast<int64_t*>(event) <= g_done; }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    if (event == nullptr) return;
    delete static_cast<int64_t*>(event);
    --g_events;
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex /*device*/) const override {
    constexpr double kMilliseconds = 1e3 * FakeDevice::kTick;
    return kMilliseconds *
           static_cast<double>(*static_cast<int64_t*>(end) - *static_cast<int64_t*>(begin));
  }
  void synchronizeEvent(void* /*event*/) const override { finish(); }
  bool queryStream(const c10::Stream& /*stream*/) const override { return g_done == g_queued; }
  void synchronizeStream(const c10::Stream& /*stream*/) const override { finish(); }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override { finish(); }

 private:
  static void finish() {
    ++g_synchronisations;
    g_done = g_queued.load();
  }
};

const c10::impl::DeviceGuardImplRegistrar kRegistered(c10::DeviceType::PrivateUse1, new FakeGuard);

}  // namespace

void FakeDevice::advance(int64_t ticks) { g_queued += ticks; }
int64_t FakeDevice::queued() { return g_queued; }
int64_t FakeDevice::synchronisations() { return g_synchronisations; }
int64_t FakeDevice::liveEvents() { return g_events; }

}  // namespace remat::testing
