// Under autocast every op is cast by the dispatcher, as in eager, and the casts are made again.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/memory_statistics.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class AutocastTest : public RuntimeTest {};

class Autocast {
 public:
  Autocast() {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

const char* const kModel = R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.gelu(torch.linear(x, self.w, self.b))
    n = torch.layer_norm(h + x, [16], self.g, self.b)
    a = torch.softmax(torch.matmul(n, n.transpose(0, 1)), -1)
    return torch.tanh(torch.linear(torch.matmul(a, h), self.w)).to(x.dtype)
)";

/// The same with eager operators: TorchScript's own autocast is no oracle.
at::Tensor eagerModel(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                      const at::Tensor& g) {
  const at::Tensor h = at::gelu(at::linear(x, w, b));
  const at::Tensor n = at::layer_norm(h + x, {16}, g, b);
  const at::Tensor a = at::softmax(at::matmul(n, n.transpose(0, 1)), -1);
  return at::tanh(at::linear(at::matmul(a, h), w)).to(x.scalar_type());
}

Module model() {
  return makeModule(
      kModel,
      {{"w", randomTensor({16, 16})}, {"b", randomTensor({16})}, {"g", randomTensor({16})}});
}

Tensors leaves(const Module& module, const at::Tensor& x) {
  return {x, module.attr("w").toTensor(), module.attr("b").toTensor(), module.attr("g").toTensor()};
}

Tensors derivatives(const at::Tensor& y, const Tensors& of) {
  const auto first = torch::autograd::grad({(y * y).sum()}, of, {}, true, /*create_graph=*/true);
  at::Tensor product = at::zeros({});
  for (const at::Tensor& gradient : first) {
    product = product + gradient.pow(2).sum();
  }
  Tensors result{y};
  result.insert(result.end(), first.begin(), first.end());
  for (const at::Tensor& second : torch::autograd::grad({product}, of)) {
    result.push_back(second);
  }
  for (at::Tensor& tensor : result) {
    tensor = tensor.detach();
  }
  return result;
}

TEST_F(AutocastTest, GradientsAndSecondDerivativesEqualEager) {
  const Module module = model();
  const at::Tensor x = randomTensor({8, 16}, true);
  const Tensors of = leaves(module, x);
  at::Tensor y;
  {
    const Autocast autocast;
    y = eagerModel(of[0], of[1], of[2], of[3]);
  }
  const Tensors expected = derivatives(y, of);
  for (const auto& keep : std::vector<std::vector<std::string>>{
           {}, {"aten::linear"}, {"aten::matmul", "aten::layer_norm"}}) {
    Module remat = optimized(module, keep);
    at::Tensor z;
    for (int call = 0; call < 3; ++call) {
      const Autocast autocast;
      z = remat.forward({x}).toTensor();
    }
    replayedNodes();
    expectSame(expected, derivatives(z, leaves(remat, x)), "derivative");
    EXPECT_GT(replayedNodes(), 0);
  }
}

TEST_F(AutocastTest, CastsAreMadeAgainAndNotKept) {
  // Eager keeps x, w and both products' operands as bfloat16; here nothing but the result is new.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x + 1.0)
    return torch.mm(torch.mm(h, self.w) + h, self.w).sum()
)",
                                   {{"w", randomTensor({64, 64})}});
  const at::Tensor x = randomTensor({64, 64}, true);
  const auto forward = [&](Module trained) {
    const int64_t before = liveBytes();
    at::Tensor y;
    {
      const Autocast autocast;
      y = trained.forward({x}).toTensor();
    }
    const int64_t held = liveBytes() - before;
    y.backward();
    return held;
  };
  EXPECT_LE(forward(optimized(module)), 16);
}

TEST_F(AutocastTest, ACastThatAnOperatorLooksAtOtherwiseIsOneToo) {
  // linear saves its input with two dimensions and its weight transposed, and the source of one is
  // not dense.
  const Module module = makeModule(
      R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.linear(torch.tanh(x), self.w)
    t = torch.sin(x).transpose(0, 1)
    return (torch.linear(t[:, :3], self.w).sum() + torch.linear(torch.tanh(h.float()), self.w).sum())
)",
      {{"w", randomTensor({32, 32})}});
  const at::Tensor x = randomTensor({4, 16, 32}, true);
  const Module remat = optimized(module, {"aten::linear"});
  const int64_t before = liveBytes();
  const Tensors of{x, remat.attr("w").toTensor()};
  at::Tensor y;
  {
    const Autocast autocast;
    y = Module(remat).forward({x}).toTensor();
  }
  // Of the three linears' results one is saved, by float().
  EXPECT_LE(liveBytes() - before, 4 * 16 * 32 * 4 + 64);
  at::Tensor expected;
  {
    const Autocast autocast;
    const at::Tensor w = module.attr("w").toTensor();
    const at::Tensor h = at::linear(of[0].tanh(), of[1]);
    const at::Tensor t = of[0].sin().transpose(0, 1);
    expected = at::linear(t.slice(1, 0, 3), of[1]).sum() +
               at::linear(h.to(at::kFloat).tanh(), of[1]).sum();
  }
  EXPECT_TRUE(at::equal(expected, y));
  replayedNodes();
  const Tensors gradients = torch::autograd::grad({y}, of);
  EXPECT_GT(replayedNodes(), 0);
  expectSame(torch::autograd::grad({expected}, of), gradients, "gradient");
}

TEST_F(AutocastTest, ANormWithoutWeightsIsReplayedInItsStatisticsPrecision) {
  // Only the float32 statistics make the norm of a bfloat16 input compute in float32.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.conv2d(x, self.w, None, [1, 1], [1, 1])
    n = torch.batch_norm(h, None, None, self.mean, self.var, True, 0.1, 1e-5, False)
    return torch.conv2d(torch.gelu(n), self.w, None, [1, 1], [1, 1])
)",
                                   {{"w", randomTensor({8, 8, 3, 3})}},
                                   {{"mean", at::zeros({8})}, {"var", at::ones({8})}});
  const at::Tensor x = randomTensor({2, 8, 9, 9}, true);
  const auto train = [&](Module trained) {
    at::Tensor y;
    {
      const Autocast autocast;
      y = trained.forward({x}).toTensor();
    }
    Tensors result = torch::autograd::grad({y.pow(2).sum()}, {x, trained.attr("w").toTensor()});
    result.push_back(trained.attr("mean").toTensor());
    result.push_back(trained.attr("var").toTensor());
    return result;
  };
  const Tensors expected = train(copyOf(module));
  replayedNodes();
  expectSame(expected, train(optimized(module)), "tensor");
  EXPECT_GT(replayedNodes(), 0);
}

TEST_F(AutocastTest, AWrittenParameterIsNoticedBehindItsCast) {
  const Module module = model();
  Module remat = optimized(module);
  at::Tensor y;
  {
    const Autocast autocast;
    y = remat.forward({randomTensor({8, 16}, true)}).toTensor();
  }
  {
    const at::NoGradGuard no_grad;
    remat.attr("w").toTensor().add_(1.0);
  }
  const std::string error = errorOf([&] { y.sum().backward(); });
  EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
}

TEST_F(AutocastTest, ABackwardInsideOfAutocastReplaysAnUncastForward) {
  Module plain = model();
  Module remat = optimized(plain);
  const at::Tensor x = randomTensor({8, 16}, true);
  const auto gradients = [&](Module& module) {
    const at::Tensor y = module.forward({x}).toTensor();
    const Autocast autocast;
    return torch::autograd::grad({y}, leaves(module, x), {at::ones_like(y)});
  };
  expectSame(gradients(plain), gradients(remat), "gradient");
}

}  // namespace
}  // namespace remat::runtime::test
