#include "runtime/program_cache.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <thread>

#include "ir/outline.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class ProgramCacheTest : public RuntimeTest {};

Module scaled(double factor) {
  return makeModule(
      "def forward(self, x: Tensor) -> Tensor:\n    return torch.sigmoid(torch.tanh(x) * " +
      std::to_string(factor) + ")\n");
}

std::shared_ptr<const RegionProgram> cached(const Module& module) {
  return runtime::programOf(module.get_method(ir::regionMethod(module, "forward")).function(),
                            module._ivalue()->compilation_unit());
}

TEST_F(ProgramCacheTest, AMethodIsCompiledOnce) {
  const Module remat = optimized(scaled(2.0));
  const auto first = cached(remat);
  EXPECT_EQ(cached(remat), first);
  EXPECT_EQ(cached(copyOf(remat)), first);  // another object of the same type
  EXPECT_NE(cached(optimized(scaled(2.0))), first);
}

TEST_F(ProgramCacheTest, ModulesThatDieMakeRoomForOthersAtTheirAddresses) {
  const at::Tensor x = randomTensor({4}, true);
  for (int i = 0; i < 100; ++i) {
    const double factor = 1.0 + i;
    Module remat = optimized(scaled(factor));
    const at::Tensor y = remat.forward({x}).toTensor();
    ASSERT_TRUE(at::equal(y, (x.tanh() * factor).sigmoid())) << i;
  }
}

TEST_F(ProgramCacheTest, AnotherOwnersFunctionAtTheSameAddressIsCompiledAnew) {
  const Module remat = optimized(scaled(2.0));
  const auto first = cached(remat);
  const Module other("Other");
  auto& function = remat.get_method(ir::regionMethod(remat, "forward")).function();
  EXPECT_NE(runtime::programOf(function, other._ivalue()->compilation_unit()), first);
}

TEST_F(ProgramCacheTest, AFrameOutlivesItsModule) {
  const at::Tensor x = randomTensor({4}, true);
  at::Tensor y;
  {
    Module remat = optimized(scaled(3.0));
    y = remat.forward({x}).toTensor();
  }
  cached(optimized(scaled(1.0)));  // drops what has expired
  y.sum().backward();
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  (x.tanh() * 3.0).sigmoid().sum().backward();
  expectSame({x.grad()}, {gradient}, "gradient");
}

TEST_F(ProgramCacheTest, AMethodThatIsDefinedAnewIsCompiledAnew) {
  Module remat = optimized(scaled(2.0));
  const at::Tensor x = randomTensor({4}, true);
  remat.forward({x});
  ir::outlineRegion(remat, "forward", regionOf(scaled(5.0)));
  EXPECT_TRUE(at::equal(remat.forward({x}).toTensor(), (x.tanh() * 5.0).sigmoid()));
}

TEST_F(ProgramCacheTest, ThreadsMayMeetAtTheFirstCall) {
  for (int round = 0; round < 10; ++round) {
    Module remat = optimized(scaled(2.0));
    const at::Tensor x = randomTensor({4}, true);
    std::vector<std::thread> threads;
    std::vector<Tensors> gradients(4);
    threads.reserve(gradients.size());
    for (auto& result : gradients) {
      threads.emplace_back(
          [&] { result = torch::autograd::grad({remat.forward({x}).toTensor().sum()}, {x}); });
    }
    for (auto& thread : threads) {
      thread.join();
    }
    for (const auto& result : gradients) {
      expectSame(gradients[0], result, "gradient");
    }
  }
}

}  // namespace
}  // namespace remat::runtime::test
