// The operators behind in-place arithmetic that was made functional, against the in-place ones.

#include "runtime/written_copy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class WrittenCopyTest : public RuntimeTest {};

struct Pair {
  const char* name;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> ours;
  std::function<at::Tensor(at::Tensor, const at::Tensor&)> in_place;
};

std::vector<Pair> pairs() {
  return {
      {"add", [](const auto& x, const auto& y) { return addToCopy(x, y, 2); },
       [](at::Tensor x, const auto& y) { return x.add_(y, 2); }},
      {"sub", [](const auto& x, const auto& y) { return subFromCopy(x, y, 2); },
       [](at::Tensor x, const auto& y) { return x.sub_(y, 2); }},
      {"mul", mulCopy, [](at::Tensor x, const auto& y) { return x.mul_(y); }},
      {"div", divCopy, [](at::Tensor x, const auto& y) { return x.div_(y); }},
  };
}

using Write = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

/// What `write` makes of a fresh tensor, and gradients.
Tensors results(const Write& write, const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor leaf = x.detach().set_requires_grad(true);
  const at::Tensor other = y.detach().set_requires_grad(true);
  const at::Tensor out = write(leaf * 1, other);
  const auto gradients = torch::autograd::grad({out}, {leaf, other}, {out.detach().cos()});
  return {out.detach(), gradients[0], gradients[1]};
}

TEST_F(WrittenCopyTest, EqualsTheInPlaceOperatorsWhateverTheDtypes) {
  const at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  for (const Pair& pair : pairs()) {
    for (const at::ScalarType left : dtypes) {
      for (const at::ScalarType right : dtypes) {
        for (const auto& sizes : std::vector<std::vector<int64_t>>{{33, 65}, {65}, {33, 1}, {}}) {
          const at::Tensor x = randomTensor({33, 65}, false, left);
          const at::Tensor y = randomTensor(sizes, false, right).abs().add(0.5);
          const std::string where = std::string(pair.name) + " " + c10::toString(left) + " " +
                                    c10::toString(right) + " of " + std::to_string(sizes.size());
          const Tensors expected = results(pair.in_place, x, y);
          const Tensors actual = results(pair.ours, x, y);
          expectSame(expected, actual, where);
          for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_EQ(expected[i].scalar_type(), actual[i].scalar_type()) << where;
          }
        }
      }
    }
  }
}

TEST_F(WrittenCopyTest, RefusesWhatDoesntFitAndLeavesItsOperandsAlone) {
  const auto refused = [](const auto& write, const at::Tensor& x, const at::Tensor& y) {
    const std::string error = errorOf([&] { write(x, y); });
    return error.substr(0, error.find('\n'));
  };
  for (const Pair& pair : pairs()) {
    const at::Tensor small = randomTensor({1, 4});
    const at::Tensor large = randomTensor({3, 4});
    const std::string expected = refused(pair.in_place, small.clone(), large);
    EXPECT_NE(expected, "");
    EXPECT_EQ(expected, refused(pair.ours, small, large)) << pair.name;
    const at::Tensor count = at::full({4}, 3, at::kLong);
    EXPECT_EQ(refused(pair.in_place, count.clone(), large), refused(pair.ours, count, large))
        << pair.name;
    const at::Tensor half = randomTensor({3, 4}, false, at::kHalf);
    const at::Tensor before = half.clone();
    pair.ours(half, large);
    EXPECT_TRUE(at::equal(before, half)) << pair.name;
  }
  EXPECT_EQ(refused(pairs()[3].in_place, at::full({4}, 3, at::kLong), at::full({4}, 2, at::kLong)),
            refused(pairs()[3].ours, at::full({4}, 3, at::kLong), at::full({4}, 2, at::kLong)));
}

}  // namespace
}  // namespace remat::runtime::test
