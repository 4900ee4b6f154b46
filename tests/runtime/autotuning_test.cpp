#include "runtime/autotuning.h"

#include <ATen/Context.h>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class AutotuningTest : public RuntimeTest {
 protected:
  void TearDown() override {
    set(false, false, false);
    RuntimeTest::TearDown();
  }

  static void set(bool autotuning, bool deterministic_cudnn, bool deterministic) {
    at::Context& context = at::globalContext();
    context.setBenchmarkCuDNN(autotuning);
    context.setDeterministicCuDNN(deterministic_cudnn);
    context.setDeterministicAlgorithms(deterministic, false);
  }

  static std::string check(const std::string& op, c10::DeviceType device = c10::kCUDA) {
    return errorOf([&] { checkAutotuning(op, "layer1.conv (a.py:3)", c10::Device(device, 0)); });
  }
};

TEST_F(AutotuningTest, IsRefusedWhereBitsAreToBeTheSame) {
  for (const bool cudnn : {true, false}) {
    set(true, cudnn, !cudnn);
    for (const char* op : {"aten::conv2d", "aten::_convolution", "aten::conv_transpose3d"}) {
      const std::string error = check(op);
      EXPECT_NE(error.find("layer1.conv (a.py:3) may be recomputed with another algorithm"),
                std::string::npos);
      EXPECT_NE(error.find("turn autotuning off"), std::string::npos);
    }
  }
}

TEST_F(AutotuningTest, IsNobodysBusinessElsewhere) {
  set(true, true, true);
  EXPECT_EQ(check("aten::matmul"), "");
  EXPECT_EQ(check("my::conv2d"), "");
  EXPECT_EQ(check("aten::conv2d", c10::kCPU), "");
  set(false, true, true);
  EXPECT_EQ(check("aten::conv2d"), "");
  set(true, true, true);
  at::globalContext().setUserEnabledCuDNN(false);
  EXPECT_EQ(check("aten::conv2d"), "");
  at::globalContext().setUserEnabledCuDNN(true);
}

TEST_F(AutotuningTest, IsWarnedOfOnceWhereBitsMayDiffer) {
  class Listener final : public c10::WarningHandler {
   public:
    void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
    std::vector<std::string> messages;
  };
  Listener listener;
  const c10::WarningUtils::WarningHandlerGuard guard(&listener);
  set(true, false, false);
  EXPECT_EQ(check("aten::conv2d"), "");
  EXPECT_EQ(check("aten::conv1d"), "");
  ASSERT_EQ(listener.messages.size(), 1);
  EXPECT_NE(listener.messages[0].find("gradients differ in their last bits"), std::string::npos);
}

TEST_F(AutotuningTest, ACpuRegionWithConvolutionsTrainsAllTheSame) {
  set(true, true, false);
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(torch.conv1d(torch.tanh(x), self.w)))
)",
                                   {{"w", randomTensor({4, 4, 3})}});
  expectTrainsAlike(module, {randomTensor({2, 4, 16}, true)}, {}, 2);
}

}  // namespace
}  // namespace remat::runtime::test
