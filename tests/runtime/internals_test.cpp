// What operators save inside of themselves and no value shows, made again by running them again.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/memory_statistics.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

const std::vector<std::string> kInside{"inside of aten::matmul", "inside of aten::max_pool2d"};

class InternalsTest : public RuntimeTest {
 protected:
  /// matmul copies what is not contiguous.
  static Module attention() {
    return makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.matmul(x, self.w).view(2, 16, 4, 8).transpose(1, 2)
    a = torch.softmax(torch.matmul(h, h.transpose(2, 3)), -1)
    return torch.tanh(torch.matmul(a, h)).sum(1)
)",
                      {{"w", randomTensor({32, 32})}});
  }

  static Module pooling() {
    return makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.max_pool2d(torch.sin(x * self.w), [3, 3], [2, 2], [1, 1], [1, 1], False)
    return torch.tanh(h * 2.0)
)",
                      {{"w", randomTensor({32})}});
  }

  static std::vector<IValue> rows() { return {randomTensor({2, 16, 32}, true)}; }
  static std::vector<IValue> images() { return {randomTensor({2, 3, 32, 32}, true)}; }

  static std::vector<std::string> with(const char* kept) {
    std::vector<std::string> marks = kInside;
    marks.emplace_back(kept);
    return marks;
  }

  /// Bytes that the graph of one forward holds.
  static int64_t heldBy(Module module, const std::vector<IValue>& inputs) {
    const int64_t before = liveBytes();
    const at::Tensor y = module.forward(inputs).toTensor();
    return liveBytes() - before;
  }
};

TEST_F(InternalsTest, GradientsEqualThePlainModules) {
  for (const auto& marks : {kInside, with("aten::matmul"), with("aten::max_pool2d")}) {
    expectTrainsAlike(attention(), rows(), marks);
    expectTrainsAlike(pooling(), images(), marks);
  }
}

TEST_F(InternalsTest, TheyTakeNoMemoryInBetween) {
  const std::vector<std::string> kept{"aten::matmul", "aten::max_pool2d"};
  std::vector<std::string> both = kInside;
  both.insert(both.end(), kept.begin(), kept.end());
  // Of 1024 elements each: h twice, as it is and transposed, and once more for the second product.
  EXPECT_LE(heldBy(optimized(attention(), both), rows()),
            heldBy(optimized(attention(), kept), rows()) - int64_t{2} * 1024 * 4);
  // An index of eight bytes for each of 2·3·16·16 results.
  EXPECT_EQ(heldBy(optimized(pooling(), both), images()),
            heldBy(optimized(pooling(), kept), images()) - int64_t{2} * 3 * 16 * 16 * 8);
}

TEST_F(InternalsTest, AGraphWithoutABackwardFreesAll) {
  Module module = optimized(attention(), kInside);
  const std::vector<IValue> inputs = rows();
  const int64_t before = liveBytes();
  module.forward(inputs);
  EXPECT_EQ(liveBytes(), before);
}

TEST_F(InternalsTest, ARetainedGraphGivesTheSameTwice) {
  for (const Module& module : {attention(), pooling()}) {
    Module remat = optimized(module, kInside);
    const at::Tensor x = randomTensor(remat.hasattr("w") && remat.attr("w").toTensor().dim() == 2
                                          ? at::IntArrayRef{2, 16, 32}
                                          : at::IntArrayRef{2, 3, 32, 32},
                                      true);
    const at::Tensor loss = remat.forward({x}).toTensor().sum();
    const auto first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
    const auto second = torch::autograd::grad({loss}, {x});
    EXPECT_TRUE(at::equal(first[0], second[0]));
  }
}

TEST_F(InternalsTest, SecondDerivativesEqualThePlainModules) {
  Module plain = attention();
  Module remat = optimized(plain, kInside);
  const at::Tensor x = randomTensor({2, 16, 32}, true);
  const auto derivatives = [&](Module& module) {
    const auto gradient = torch::autograd::grad({module.forward({x}).toTensor().sum()}, {x}, {},
                                                /*retain_graph=*/true, /*create_graph=*/true);
    return torch::autograd::grad({gradient[0].pow(2).sum()}, {x})[0];
  };
  EXPECT_TRUE(at::equal(derivatives(plain), derivatives(remat)));
}

TEST_F(InternalsTest, UnderAutocastTheyHaveItsDtype) {
  // TorchScript's own autocast is no oracle: compared with all of them kept.
  const Module module = attention();
  const std::vector<IValue> inputs = rows();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  Module kept = optimized(module);
  Module regenerated = optimized(module, kInside);
  expectSame(step(kept, inputs), step(regenerated, inputs));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
}

}  // namespace
}  // namespace remat::runtime::test
