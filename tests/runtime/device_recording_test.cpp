#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/library.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/device.h"
#include "runtime/device_allocations.h"
#include "runtime/recording.h"
#include "runtime/step_clock.h"
#include "tests/runtime/fake_device.h"

namespace remat::runtime {
namespace {

using remat::testing::FakeDevice;

constexpr c10::DeviceType kFake = c10::DeviceType::PrivateUse1;

void synchronizeFake() { c10::impl::VirtualGuardImpl(kFake).synchronizeDevice(0); }

TEST(StepClockTest, ReadsADevicesEvents) {
  StepClock clock(c10::Device(kFake, 0));
  const int64_t waited = FakeDevice::synchronisations();
  const int32_t begin = clock.now();
  FakeDevice::advance(3);
  const int32_t middle = clock.now();
  FakeDevice::advance(5);
  const int32_t end = clock.now();
  EXPECT_EQ(FakeDevice::synchronisations(), waited) << "taking an instant waits for nothing";
  EXPECT_ANY_THROW(clock.seconds(begin, end)) << "the device is not that far";
  synchronizeFake();
  EXPECT_DOUBLE_EQ(clock.seconds(begin, middle), 3 * FakeDevice::kTick);
  EXPECT_DOUBLE_EQ(clock.seconds(middle, end), 5 * FakeDevice::kTick);
}

TEST(StepClockTest, GivesEventsBack) {
  const int64_t before = FakeDevice::liveEvents();
  {
    StepClock clock(c10::Device(kFake, 0));
    clock.now();
    EXPECT_EQ(FakeDevice::liveEvents(), before + 1);
  }
  EXPECT_EQ(FakeDevice::liveEvents(), before);
}

class Listener final : public AllocationListener {
 public:
  void allocated(const void* data, size_t bytes) override {
    live[data] = bytes;
    sizes.push_back(bytes);
  }
  void freed(const void* data, size_t bytes) override {
    const auto found = live.find(data);
    if (found == live.end()) return;
    EXPECT_EQ(found->second, bytes);
    live.erase(found);
  }
  std::unordered_map<const void*, size_t> live;
  std::vector<size_t> sizes;
};

/// c10's CPU allocator reports as a device's does.
TEST(DeviceAllocationScopeTest, TellsOfTheDeviceAndOfOthersWithoutBytes) {
  Listener own;
  {
    const DeviceAllocationScope scope(c10::kCPU, own);
    const at::Tensor tensor = at::empty({100});
    ASSERT_EQ(own.live.count(tensor.storage().data()), 1U);
    EXPECT_EQ(own.live.at(tensor.storage().data()), 400U);
  }
  EXPECT_TRUE(own.live.empty());
  Listener other;
  {
    const DeviceAllocationScope scope(c10::Device(kFake, 0), other);
    at::empty({100});
  }
  EXPECT_EQ(other.sizes, std::vector<size_t>{0});
  at::empty({100});
  EXPECT_EQ(other.sizes.size(), 1U) << "the scope is over";
}

/// A block of the threads that autograd runs on: a backward called under the scope is seen.
TEST(DeviceAllocationScopeTest, SeesBackwards) {
  const at::Tensor weight = at::ones({64, 64}).set_requires_grad(true);
  const at::Tensor loss = at::matmul(weight, weight).sum();
  Listener listener;
  const DeviceAllocationScope scope(c10::kCPU, listener);
  loss.backward();
  EXPECT_EQ(listener.live.count(weight.grad().storage().data()), 1U);
}

// --- A whole step, timed by the device ---

/// Knows how to be kept busy, and has no generators.
class OccupiedDevice final : public DeviceInterface {
 public:
  uint64_t currentCapture(c10::Device /*device*/) const override { return 0; }
  void occupy(c10::Device /*device*/, double seconds) const override {
    FakeDevice::advance(static_cast<int64_t>(seconds / FakeDevice::kTick));
  }
  GeneratorPosition position(const at::Generator& /*generator*/) const override { return {}; }
  at::Generator generatorAt(c10::Device /*device*/,
                            const GeneratorPosition& /*position*/) const override {
    return {};
  }
  void advance(at::Generator& /*generator*/, uint64_t /*numbers*/) const override {}
};

/// Takes 10 ticks, and its backward 20.
class Busy : public torch::autograd::Function<Busy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    FakeDevice::advance(10);
    context->save_for_backward({x});
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    FakeDevice::advance(20);
    return {gradients[0] * 2};
  }
};

at::Tensor busy(const at::Tensor& x) { return Busy::apply(x); }

TORCH_LIBRARY(remat_device_recording_test, library) {
  library.def("busy(Tensor x) -> Tensor", &busy);
}

ir::Profile recordBusyStep(c10::Device device, int64_t& waited, double head_start = 0) {
  torch::jit::Graph graph;
  torch::jit::parseIR(R"(
graph(%self : Tensor, %x : Tensor):
  %a : Tensor = remat_device_recording_test::busy(%x)
  %b : Tensor = aten::sigmoid(%a)
  %c : Tensor = remat_device_recording_test::busy(%b)
  return (%c)
)",
                      &graph);
  Recording recording(graph, device);
  const int64_t before = FakeDevice::synchronisations();
  recording.start(head_start);
  const at::Tensor x = at::ones({32}).set_requires_grad(true);
  std::vector<c10::IValue> outputs = recording.forward({at::ones({1}), x});
  outputs.at(0).toTensor().sum().backward();
  outputs.clear();
  waited = FakeDevice::synchronisations() - before;
  FakeDevice::advance(1000);  // of nobody's
  synchronizeFake();
  return recording.finish();
}

TEST(DeviceRecordingTest, TimesNodesByTheDevicesClockAndWaitsForNothing) {
  int64_t waited = -1;
  const ir::Profile profile = recordBusyStep(c10::Device(kFake, 0), waited);
  EXPECT_EQ(waited, 0);
  ASSERT_EQ(profile.nodes.size(), 3U);
  EXPECT_DOUBLE_EQ(profile.nodes[0].seconds, 10 * FakeDevice::kTick);
  EXPECT_DOUBLE_EQ(profile.nodes[1].seconds, 0);
  EXPECT_DOUBLE_EQ(profile.nodes[2].seconds, 10 * FakeDevice::kTick);
  double of_busy = 0;
  double all = 0;
  for (const ir::BackwardStep& step : profile.backward) {
    all += step.seconds;
    if (step.node == 0 || step.node == 2) of_busy += step.seconds;
  }
  EXPECT_DOUBLE_EQ(of_busy, 40 * FakeDevice::kTick);
  EXPECT_DOUBLE_EQ(all, of_busy) << "what comes after the backward is none of its steps";
  EXPECT_DOUBLE_EQ(profile.step_seconds, 60 * FakeDevice::kTick);
  int64_t bytes = 0;
  for (const ir::StorageProfile& storage : profile.storages) bytes += storage.bytes;
  EXPECT_EQ(bytes, 0) << "tensors on the CPU take none of the device's memory";
}

TEST(DeviceRecordingTest, AHeadStartIsNoPartOfTheStep) {
  static const OccupiedDevice device;
  registerDevice(kFake, &device);
  const int64_t queued = FakeDevice::queued();
  int64_t waited = -1;
  const ir::Profile profile =
      recordBusyStep(c10::Device(kFake, 0), waited, 500 * FakeDevice::kTick);
  registerDevice(kFake, nullptr);
  EXPECT_EQ(waited, 0);
  EXPECT_EQ(FakeDevice::queued() - queued, 500 + 60 + 1000);
  EXPECT_DOUBLE_EQ(profile.step_seconds, 60 * FakeDevice::kTick);
  EXPECT_DOUBLE_EQ(profile.nodes.at(0).seconds, 10 * FakeDevice::kTick);
}

}  // namespace
}  // namespace remat::runtime
