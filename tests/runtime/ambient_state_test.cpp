#include "runtime/ambient_state.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "tests/runtime/support.h"
#include "tests/runtime/touchy.h"

namespace remat::runtime::test {
namespace {

/// One thing that a forward may be under: how to turn it on and off, and whether it is on.
struct Item {
  const char* name;
  std::function<void(bool)> set;
  std::function<bool()> get;
};

at::Context& context() { return at::globalContext(); }

Item precision(const char* name, at::Float32Backend backend, at::Float32Op op,
               at::Float32Precision on) {
  return {name,
          [=](bool value) {
            context().setFloat32Precision(backend, op, value ? on : at::Float32Precision::IEEE);
          },
          [=] { return context().float32Precision(backend, op) == on; }};
}

std::vector<Item> items() {
  using at::Float32Backend;
  using at::Float32Op;
  using at::Float32Precision;
  return {
      {"autocast", [](bool on) { at::autocast::set_autocast_enabled(at::kCPU, on); },
       [] { return at::autocast::is_autocast_enabled(at::kCPU); }},
      {"autocast dtype",
       [](bool on) { at::autocast::set_autocast_dtype(at::kCPU, on ? at::kHalf : at::kBFloat16); },
       [] { return at::autocast::get_autocast_dtype(at::kCPU) == at::kHalf; }},
      {"autocast on cuda", [](bool on) { at::autocast::set_autocast_enabled(at::kCUDA, on); },
       [] { return at::autocast::is_autocast_enabled(at::kCUDA); }},
      {"default dtype",
       [](bool on) {
         c10::set_default_dtype(on ? caffe2::TypeMeta::Make<double>()
                                   : caffe2::TypeMeta::Make<float>());
       },
       [] { return c10::get_default_dtype() == caffe2::TypeMeta::Make<double>(); }},
      precision("mkldnn matmul", Float32Backend::MKLDNN, Float32Op::MATMUL, Float32Precision::BF16),
      precision("mkldnn conv", Float32Backend::MKLDNN, Float32Op::CONV, Float32Precision::BF16),
      precision("cuda matmul", Float32Backend::CUDA, Float32Op::MATMUL, Float32Precision::TF32),
      precision("cuda conv", Float32Backend::CUDA, Float32Op::CONV, Float32Precision::TF32),
      {"two threads", [](bool on) { at::set_num_threads(on ? 2 : 1); },
       [] { return at::get_num_threads() == 2; }},
      {"deterministic", [](bool on) { context().setDeterministicAlgorithms(on, false); },
       [] { return context().deterministicAlgorithms(); }},
      {"mkldnn off", [](bool on) { context().setUserEnabledMkldnn(!on); },
       [] { return !context().userEnabledMkldnn(); }},
      {"flash attention off", [](bool on) { context().setSDPUseFlash(!on); },
       [] { return !context().userEnabledFlashSDP(); }},
      {"cudnn off", [](bool on) { context().setUserEnabledCuDNN(!on); },
       [] { return !context().userEnabledCuDNN(); }},
      {"reduced sums in attention", [](bool on) { context().setAllowFP16BF16ReductionMathSDP(on); },
       [] { return context().allowFP16BF16ReductionMathSDP(); }},
      {"cudnn autotuning", [](bool on) { context().setBenchmarkCuDNN(on); },
       [] { return context().benchmarkCuDNN(); }},
      {"float16 accumulation", [](bool on) { context().setAllowFP16AccumulationCuBLAS(on); },
       [] { return context().allowFP16AccumulationCuBLAS(); }},
      {"float16 reduction off", [](bool on) { context().setAllowFP16ReductionCuBLAS(!on); },
       [] {
         return context().allowFP16ReductionCuBLAS() ==
                at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK;
       }},
      {"bfloat16 split-k off", [](bool on) { context().setAllowBF16ReductionCuBLAS(!on, !on); },
       [] {
         return context().allowBF16ReductionCuBLAS() ==
                at::CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK;
       }},
      {"cudnn deterministic", [](bool on) { context().setDeterministicCuDNN(on); },
       [] { return context().deterministicCuDNN(); }},
  };
}

class AmbientStateTest : public RuntimeTest {
 protected:
  void TearDown() override {
    for (const Item& item : items()) {
      item.set(false);
    }
    RuntimeTest::TearDown();
  }
};

TEST_F(AmbientStateTest, AScopePutsEachItemInPlaceAndBack) {
  for (const Item& item : items()) {
    for (const bool forward : {true, false}) {
      for (const bool backward : {true, false}) {
        item.set(forward);
        const AmbientState state = AmbientState::current();
        item.set(backward);
        {
          const AmbientState::Scope scope(state);
          EXPECT_EQ(item.get(), forward) << item.name;
        }
        EXPECT_EQ(item.get(), backward) << item.name;
        try {
          const AmbientState::Scope scope(state);
          throw std::runtime_error("a replay that fails");
        } catch (const std::runtime_error&) {
        }
        EXPECT_EQ(item.get(), backward) << item.name;
      }
    }
    item.set(false);
  }
}

TEST_F(AmbientStateTest, TheAutocastCacheIsOffInsideAndBackAfterwards) {
  const AmbientState state = AmbientState::current();
  ASSERT_TRUE(at::autocast::is_autocast_cache_enabled());
  {
    const AmbientState::Scope scope(state);
    EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
  }
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

TEST_F(AmbientStateTest, ReplaysRunUnderTheForwardsStateAndLeaveTheCallers) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x * 0.3)
    return torch.sigmoid(torch.tanh(h @ self.w) * 2.0)
)",
                                   {{"w", randomTensor({4, 4})}});
  const at::Tensor x = randomTensor({4, 4}, true);
  for (const Item& item : items()) {
    if (std::string(item.name).rfind("autocast", 0) == 0 ||
        std::string(item.name) == "default dtype") {
      continue;  // autocast_test, and below
    }
    for (const bool forward : {true, false}) {
      const auto gradients = [&](Module trained) {
        item.set(forward);
        const at::Tensor y = trained.forward({x}).toTensor();
        // The backward's own kernels run under the caller's state, as without Remat.
        item.set(!forward);
        Tensors result = torch::autograd::grad({y.sum()}, {x, trained.attr("w").toTensor()});
        EXPECT_EQ(item.get(), !forward) << item.name;
        item.set(false);
        return result;
      };
      expectSame(gradients(copyOf(module)), gradients(optimized(module)), item.name);
    }
  }
}

TEST_F(AmbientStateTest, TheDefaultDtypeOfTheForwardIsThatOfTheReplay) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.sigmoid(torch.tanh(x * torch.ones([4])) * 2.0)
)");
  const at::Tensor x = randomTensor({4, 4}, true);
  const auto gradients = [&](Module trained) {
    c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
    const at::Tensor y = trained.forward({x}).toTensor();
    EXPECT_EQ(y.scalar_type(), at::kDouble);
    c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
    Tensors result = torch::autograd::grad({y.sum()}, {x});
    EXPECT_EQ(c10::get_default_dtype(), caffe2::TypeMeta::Make<float>());
    return result;
  };
  expectSame(gradients(copyOf(module)), gradients(optimized(module)), "gradient");
}

TEST_F(AmbientStateTest, AReplayThatThrowsLeavesTheCallersState) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.touchy(torch.tanh(x) * 2.0).exp()
)");
  Module remat = optimized(module);
  context().setDeterministicAlgorithms(true, true);
  const at::Tensor y = remat.forward({randomTensor({4, 4}, true)}).toTensor();
  context().setDeterministicAlgorithms(false, false);
  makeTouchyThrow(true);
  const std::string error = errorOf([&] { y.sum().backward(); });
  makeTouchyThrow(false);
  EXPECT_NE(error.find("touchy was touched"), std::string::npos) << error;
  EXPECT_FALSE(context().deterministicAlgorithms());
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

}  // namespace
}  // namespace remat::runtime::test
