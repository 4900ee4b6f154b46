#include "runtime/profiler_range.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

/// What a tool that listens to NVTX would see.
class Listener final : public RangeSink {
 public:
  void push(ProfilerRange::Kind kind, const char* what) const noexcept override {
    constexpr const char* kNames[] = {"region", "segment", "replay"};
    events.push_back(std::string(2 * open++, ' ') + kNames[static_cast<size_t>(kind)] + " " + what);
  }
  void pop() const noexcept override { --open; }

  mutable std::vector<std::string> events;
  mutable size_t open = 0;
};

class ProfilerRangeTest : public RuntimeTest {
 protected:
  void TearDown() override {
    setRangeSink(nullptr);
    RuntimeTest::TearDown();
  }

  static Module layers() {
    return makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    a = torch.tanh(x)
    b = torch.sigmoid(a)
    return b * torch.sin(b)
)");
  }
};

TEST_F(ProfilerRangeTest, RegionsSegmentsAndReplaysNest) {
  Module remat = optimized(layers());
  const Listener listener;
  setRangeSink(&listener);
  const at::Tensor y = remat.forward({randomTensor({8}, true)}).toTensor();
  ASSERT_EQ(listener.events, std::vector<std::string>{"region remat_region_forward_0"});
  listener.events.clear();
  y.sum().backward();
  EXPECT_EQ(listener.open, 0);
  ASSERT_GE(listener.events.size(), 3);
  EXPECT_EQ(listener.events[0].rfind("segment ", 0), 0) << listener.events[0];
  EXPECT_NE(listener.events[0].find(" (made at "), std::string::npos) << listener.events[0];
  EXPECT_EQ(listener.events[1].rfind("  replay ", 0), 0) << listener.events[1];
}

TEST_F(ProfilerRangeTest, AreClosedByExceptionsToo) {
  Module remat = optimized(layers());
  const Listener listener;
  setRangeSink(&listener);
  EXPECT_ANY_THROW(remat.forward({at::empty({2}, at::kQUInt8)}));
  EXPECT_EQ(listener.open, 0);
}

TEST_F(ProfilerRangeTest, PyTorchsProfilersSeeThem) {
  static std::vector<std::string> seen;
  seen.clear();
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function)
                                                           -> std::unique_ptr<at::ObserverContext> {
                              seen.emplace_back(function.name());
                              return nullptr;
                            }).scopes({at::RecordScope::USER_SCOPE}));
  Module remat = optimized(layers());
  remat.forward({randomTensor({8}, true)}).toTensor().sum().backward();
  at::removeCallback(handle);
  const auto count = [&](const std::string& prefix) {
    return std::count_if(seen.begin(), seen.end(), [&](const std::string& name) {
      return name.rfind(prefix, 0) == 0 && name.size() > prefix.size();
    });
  };
  EXPECT_EQ(count("remat::region "), 1);
  EXPECT_GE(count("remat::segment "), 1);
  EXPECT_GE(count("remat::replay "), 2);
}

}  // namespace
}  // namespace remat::runtime::test
