// Attention in parts against LibTorch's, bit for bit.

#include "runtime/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/dropout.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class AttentionTest : public RuntimeTest {};

struct Case {
  at::ScalarType dtype = at::kFloat;
  std::optional<at::Tensor> mask;
  double dropout = 0.3;
  bool causal = false;
  std::optional<double> scale;
  int64_t key_heads = 4;
};

using Function = std::function<at::Tensor(const Attention&, const at::Tensor&)>;

at::Tensor ours(const Attention& attention, const at::Tensor& value) {
  const at::Tensor weights = attentionWeights(attention);
  const at::Tensor mask = dropoutMask(weights, attention.dropout, true, std::nullopt);
  return applyAttention(applyDropout(weights, mask, attention.dropout, true), attention, value);
}

at::Tensor eager(const Attention& attention, const at::Tensor& value) {
  return at::scaled_dot_product_attention(attention.query, attention.key, value, attention.mask,
                                          attention.dropout, attention.causal, attention.scale,
                                          attention.grouped);
}

/// Value, gradients, next draw.
Tensors results(const Function& function, const Case& c, bool gradients) {
  const auto leaf = [&](at::IntArrayRef sizes) {
    return randomTensor(sizes, false, c.dtype).set_requires_grad(gradients);
  };
  at::manual_seed(11);
  Attention attention{
      leaf({2, 4, 9, 8}), leaf({2, c.key_heads, 7, 8}), c.mask, c.dropout, c.causal, c.scale,
      c.key_heads != 4};
  const at::Tensor value = leaf({2, c.key_heads, 7, 8});
  at::manual_seed(12);
  const at::Tensor y = function(attention, value);
  Tensors all{y.detach(), at::rand({4})};
  if (!gradients) return all;
  for (const at::Tensor& gradient :
       torch::autograd::grad({(y * y).sum()}, {attention.query, attention.key, value})) {
    all.push_back(gradient);
  }
  return all;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    Case plain;
    plain.dtype = dtype;
    all.push_back(plain);
    for (const double dropout : {0.0, 1.0}) {
      all.push_back(plain);
      all.back().dropout = dropout;
    }
    all.push_back(plain);
    all.back().causal = true;
    for (const double scale : {0.7, -0.2}) {
      all.push_back(plain);
      all.back().scale = scale;
    }
    all.push_back(plain);
    all.back().key_heads = 2;
    at::Tensor shown = at::ones({9, 7}, at::kBool).tril();
    shown[3].fill_(false);  // a row that sees nothing
    all.push_back(plain);
    all.back().mask = shown;
    all.push_back(plain);
    all.back().mask = randomTensor({2, 1, 9, 7}, false, dtype);
  }
  return all;
}

TEST_F(AttentionTest, EqualsLibTorchs) {
  const std::vector<Case> all = cases();
  for (size_t i = 0; i < all.size(); ++i) {
    for (const bool gradients : {true, false}) {
      expectSame(results(eager, all[i], gradients), results(ours, all[i], gradients),
                 "case " + std::to_string(i) + (gradients ? " with gradients" : ""));
    }
  }
}

}  // namespace
}  // namespace remat::runtime::test
