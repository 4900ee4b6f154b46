// Our dropout against LibTorch's, bit for bit.

#include "runtime/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class DropoutTest : public RuntimeTest {};

using Dropout = std::function<at::Tensor(const at::Tensor&, double, bool)>;

at::Tensor ours(const at::Tensor& x, double p, bool train) {
  return applyDropout(x, dropoutMask(x, p, train, std::nullopt), p, train);
}

at::Tensor eager(const at::Tensor& x, double p, bool train) { return at::dropout(x, p, train); }

/// Value, gradient, second derivatives, next draw.
Tensors results(const Dropout& dropout, const at::Tensor& input, double p, bool train) {
  at::manual_seed(11);
  const at::Tensor x = input.detach().set_requires_grad(true);
  const at::Tensor y = dropout(x, p, train);
  const at::Tensor out = y * y;
  const auto gradient =
      torch::autograd::grad({out.sum()}, {x}, {}, std::nullopt, /*create_graph=*/true);
  const auto second = torch::autograd::grad({(gradient[0] * gradient[0]).sum()}, {x});
  return {y.detach(), gradient[0].detach(), second[0], at::rand({4})};
}

TEST_F(DropoutTest, EqualsEagerInEveryMode) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = randomTensor({16, 33}, false, dtype);
    for (const double p : {0.0, 0.1, 0.3, 0.5, 0.9, 1.0}) {
      for (const bool train : {true, false}) {
        expectSame(results(eager, x, p, train), results(ours, x, p, train),
                   std::string(c10::toString(dtype)) + " " + std::to_string(p));
      }
    }
  }
}

TEST_F(DropoutTest, EqualsEagerForEveryLayout) {
  const at::Tensor image = randomTensor({2, 3, 5, 7});
  for (const at::Tensor& x :
       {image.contiguous(at::MemoryFormat::ChannelsLast), image.transpose(1, 3),
        image.slice(3, 1, 6, 2), image.narrow(1, 0, 1).expand({2, 3, 5, 7}), randomTensor({}),
        randomTensor({0, 3})}) {
    expectSame(results(eager, x, 0.4, true), results(ours, x, 0.4, true), "layout");
  }
}

TEST_F(DropoutTest, EqualsEagerForNumbersThatAreNone) {
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor x = at::full({64}, infinity);
  for (const double p : {0.5, 1.0}) {
    at::manual_seed(2);
    const at::Tensor expected = eager(x, p, true);
    at::manual_seed(2);
    const at::Tensor actual = ours(x, p, true);
    EXPECT_TRUE(at::equal(expected.isnan(), actual.isnan()));
    EXPECT_TRUE(at::equal(expected.nan_to_num(), actual.nan_to_num()));
  }
}

TEST_F(DropoutTest, TheMaskIsAByteAnElementAndEmptyWhereNothingHappens) {
  const at::Tensor x = randomTensor({8, 8});
  const at::Tensor mask = dropoutMask(x, 0.5, true, std::nullopt);
  EXPECT_EQ(mask.scalar_type(), at::kBool);
  EXPECT_EQ(mask.sizes(), x.sizes());
  EXPECT_EQ(dropoutMask(x, 0.0, true, std::nullopt).numel(), 0);
  EXPECT_EQ(dropoutMask(x, 0.5, false, std::nullopt).numel(), 0);
  EXPECT_TRUE(ours(x, 0.5, false).is_same(x));
  EXPECT_TRUE(eager(x, 0.5, false).is_same(x));
}

TEST_F(DropoutTest, RefusesWhatEagerRefuses) {
  const at::Tensor x = randomTensor({2});
  for (const double p : {-0.1, 1.1}) {
    const std::string expected = errorOf([&] { eager(x, p, true); });
    const std::string actual = errorOf([&] { ours(x, p, true); });
    EXPECT_EQ(actual.substr(0, actual.find('\n')), expected.substr(0, expected.find('\n')));
  }
}

TEST_F(DropoutTest, ReplaysInEveryModeEqualThePlainModule) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const Module module = makeModule(R"(
def forward(self, x: Tensor, p: float, train: bool) -> Tensor:
    h = torch.dropout(torch.tanh(x), p, train)
    return torch.sigmoid(torch.tanh(h * self.w))
)",
                                     {{"w", randomTensor({6}, false, dtype)}});
    for (const double p : {0.0, 0.4, 1.0}) {
      for (const bool train : {true, false}) {
        for (const auto& keep :
             std::vector<std::vector<std::string>>{{}, {"remat::dropout_mask"}, {"aten::tanh"}}) {
          expectTrainsAlike(module, {randomTensor({5, 6}, true, dtype), p, train}, keep, 2);
        }
      }
    }
  }
}

TEST_F(DropoutTest, ADroppedOutImageIsReplayedInItsLayout) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.dropout(torch.tanh(x), 0.4, True)
    return torch.sigmoid(torch.tanh(h) * 2.0)
)");
  Module plain = copyOf(module);
  Module remat = optimized(module);
  const at::Tensor x =
      randomTensor({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  const auto train = [&](Module& trained) {
    at::manual_seed(5);
    const at::Tensor y = trained.forward({x}).toTensor();
    return torch::autograd::grad({(y * y).sum()}, {x});
  };
  expectSame(train(plain), train(remat), "gradient");
}

}  // namespace
}  // namespace remat::runtime::test
