// A tensor written between forward and backward is an error where plain autograd says so, and
// where Remat alone would read it; ordinary training raises no alarm.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class VersionCheck : public RuntimeTest {};

/// Runs forward, lets `write` have the module, the input and the result, and returns what the
/// backward has to say.
std::string afterWriting(Module module,
                         const std::function<void(Module&, at::Tensor&, at::Tensor&)>& write) {
  at::Tensor x = randomTensor({4, 4}, true) * 1.0;
  at::Tensor y = module.forward({x}).toTensor();
  const at::Tensor loss = y.sum();
  {
    const at::NoGradGuard no_grad;
    write(module, x, y);
  }
  return errorOf([&] { loss.backward(); });
}

const char* const kModel = R"(
def forward(self, x: Tensor) -> Tensor:
    product = x @ self.w
    hidden = torch.tanh(product)
    return torch.exp(torch.sigmoid(hidden) @ self.w)
)";

Module model() { return makeModule(kModel, {{"w", randomTensor({4, 4})}}); }

const std::vector<std::vector<std::string>> kPlans = {{}, {"aten::matmul"}, {"aten::tanh"}};

TEST_F(VersionCheck, OfAParameter) {
  const auto write = [](Module& module, at::Tensor&, at::Tensor&) {
    module.attr("w").toTensor().add_(1.0);
  };
  EXPECT_NE(afterWriting(model(), write).find("modified by an inplace operation"),
            std::string::npos);
  for (const auto& keep : kPlans) {
    const std::string error = afterWriting(optimized(model(), keep), write);
    EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
    EXPECT_NE(error.find("saved value w"), std::string::npos) << error;
  }
}

TEST_F(VersionCheck, OfAnInput) {
  const auto write = [](Module&, at::Tensor& x, at::Tensor&) { x.mul_(2.0); };
  EXPECT_NE(afterWriting(model(), write).find("modified by an inplace operation"),
            std::string::npos);
  for (const auto& keep : kPlans) {
    const std::string error = afterWriting(optimized(model(), keep), write);
    EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
  }
}

TEST_F(VersionCheck, OfAnInputThatOnlyAReplayReads) {
  // Plain autograd saves nothing of x: this alarm is ours, and says what is at stake.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.sigmoid(torch.tanh(x + 1.0) * 2.0)
)");
  const auto write = [](Module&, at::Tensor& x, at::Tensor&) { x.mul_(2.0); };
  EXPECT_EQ(afterWriting(module, write), "");
  const std::string error = afterWriting(optimized(module), write);
  EXPECT_NE(error.find("remat: x (an argument) was written in place between the forward and the "
                       "backward, which has to recompute from it"),
            std::string::npos)
      << error;
}

TEST_F(VersionCheck, OfTheRegionsResult) {
  const auto write = [](Module&, at::Tensor&, at::Tensor& y) { y.add_(1.0); };
  EXPECT_NE(afterWriting(model(), write).find("modified by an inplace operation"),
            std::string::npos);
  for (const auto& keep : kPlans) {
    const std::string error = afterWriting(optimized(model(), keep), write);
    EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
    EXPECT_NE(error.find("saved value exp_1 (made at exp_1"), std::string::npos) << error;
  }
}

TEST_F(VersionCheck, OfAKeptValueThatIsAlsoAResult) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
    hidden = torch.tanh(x)
    return hidden, torch.sigmoid(hidden * 2.0) * 3.0
)");
  for (Module trained : {copyOf(module), optimized(module)}) {
    const at::Tensor x = randomTensor({4, 4}, true);
    const Tensors outputs = tensorsIn(trained.forward({x}));
    {
      const at::NoGradGuard no_grad;
      outputs[0].add_(1.0);
    }
    const std::string error = errorOf([&] { outputs[1].sum().backward(); });
    EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
  }
}

TEST_F(VersionCheck, OfAValueInsideTheRegion) {
  // sigmoid's result is written after it was saved, behind an alias: plain autograd refuses the
  // backward, and so do we.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    s = torch.sigmoid(torch.tanh(x))
    v = s.view(-1)
    v.mul_(2.0)
    return torch.exp(s)
)");
  const auto nothing = [](Module&, at::Tensor&, at::Tensor&) {};
  EXPECT_NE(afterWriting(module, nothing).find("modified by an inplace operation"),
            std::string::npos);
  const std::string error = afterWriting(optimized(module), nothing);
  EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
  EXPECT_NE(error.find("while Remat handed back the saved value"), std::string::npos) << error;
}

TEST_F(VersionCheck, OfAListsElement) {
  const Module module = makeModule(R"(
def forward(self, xs: List[Tensor]) -> Tensor:
    return torch.sigmoid(torch.tanh(torch.cat(xs) + 1.0) * 2.0)
)");
  Module remat = optimized(module);
  at::Tensor x = randomTensor({4, 4}, true) * 1.0;
  const at::Tensor loss = remat.forward({c10::List<at::Tensor>({x, x * 2.0})}).toTensor().sum();
  {
    const at::NoGradGuard no_grad;
    x.add_(1.0);
  }
  const std::string error = errorOf([&] { loss.backward(); });
  EXPECT_NE(error.find("was written in place between the forward and the backward"),
            std::string::npos)
      << error;
}

TEST_F(VersionCheck, AWriteBeforeTheRegionReadsIsNone) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    x.add_(1.0)
    self.scale.mul_(1.5)
    return torch.sigmoid(torch.tanh(x * self.scale) * 2.0)
)",
                                   {}, {{"scale", at::ones({4})}});
  Module plain = copyOf(module);
  Module remat = optimized(module);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor leaf = randomTensor({4, 4}, true);
    expectSame(torch::autograd::grad({plain.forward({leaf * 1.0}).toTensor().sum()}, {leaf}),
               torch::autograd::grad({remat.forward({leaf * 1.0}).toTensor().sum()}, {leaf}),
               "gradient");
  }
}

TEST_F(VersionCheck, TheOptimizersStepIsNone) {
  for (const auto& keep : kPlans) {
    Module remat = optimized(model(), keep);
    at::Tensor w = remat.attr("w").toTensor();
    at::Tensor input = randomTensor({4, 4});
    for (int i = 0; i < 3; ++i) {
      at::Tensor loss = remat.forward({input}).toTensor().sum();
      EXPECT_EQ(errorOf([&] { loss.backward(); }), "");
      const at::NoGradGuard no_grad;
      w.sub_(w.grad(), 1e-3);
      w.mutable_grad().zero_();
      input.normal_();
    }
  }
}

TEST_F(VersionCheck, TensorsWithoutAVersionAreReadAsTheyAre) {
  // Inference tensors may enter training: plain autograd allows it where it saves none of them.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.sigmoid(torch.tanh(x + self.w) * 2.0)
)",
                                   {{"w", randomTensor({4, 4})}});
  at::Tensor x;
  {
    const c10::InferenceMode inference;
    x = at::ones({4, 4});
  }
  Module plain = copyOf(module);
  Module remat = optimized(module);
  plain.forward({x}).toTensor().sum().backward();
  remat.forward({x}).toTensor().sum().backward();
  expectSame({plain.attr("w").toTensor().grad()}, {remat.attr("w").toTensor().grad()}, "gradient");
}

}  // namespace
}  // namespace remat::runtime::test
