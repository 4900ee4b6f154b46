// Errors that were seen to happen in a naive runtime without anybody noticing, each by name.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/memory_statistics.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class SilentErrors : public RuntimeTest {};

Named weight() { return {{"w", randomTensor({4, 4})}}; }

TEST_F(SilentErrors, ReplayOfTheUnwrittenValueAddThenGelu) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = x @ self.w
    h.add_(x)
    return torch.gelu(h) @ self.w
)",
                                   weight());
  expectTrainsAlike(module, {randomTensor({4, 4}, true)});
}

TEST_F(SilentErrors, ReplayOfTheUnwrittenValueBehindAnAlias) {
  // The view keeps `add_` in place: nobody can make it functional.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = x @ self.w
    v = h.view(-1)
    v.add_(1.0)
    s = torch.gelu(h)
    return torch.sigmoid(s @ self.w) + h
)",
                                   weight());
  expectTrainsAlike(module, {randomTensor({4, 4}, true)});
}

TEST_F(SilentErrors, ReplayOfTheUnwrittenValueSigmoidInPlace) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = x @ self.w
    h.sigmoid_()
    return torch.gelu(h) @ self.w
)",
                                   weight());
  expectTrainsAlike(module, {randomTensor({4, 4}, true)});
}

TEST_F(SilentErrors, ReplayOfTheUnwrittenValueSigmoidInPlaceBehindAnAlias) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = x @ self.w
    v = h.t()
    v.sigmoid_()
    g = torch.gelu(h)
    return torch.tanh(g) @ self.w
)",
                                   weight());
  expectTrainsAlike(module, {randomTensor({4, 4}, true)});
}

TEST_F(SilentErrors, InPlaceWriteOfAnArgumentOrOfPartOfAValue) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    y = x * 2.0
    y[0] = torch.tanh(y[1])
    z = torch.sigmoid(y) @ self.w
    z[:, 1].mul_(3.0)
    return torch.gelu(z)
)",
                                   weight());
  expectTrainsAlike(module, {randomTensor({4, 4}, true)});
}

TEST_F(SilentErrors, OutputSlotKeptWithoutDetachFreesADroppedGraph) {
  // exp saves its own result, here a result of the region: a slot that held the very tensor would
  // be a cycle.
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.exp(torch.tanh(x @ self.w))
)",
                                   weight());
  for (const std::vector<std::string>& keep :
       {std::vector<std::string>{}, std::vector<std::string>{"aten::tanh"}}) {
    Module remat = optimized(module, keep);
    const at::Tensor x = randomTensor({4, 4}, true);
    { const IValue warm = remat.forward({x}); }
    const int64_t before = liveBytes();
    { const IValue dropped = remat.forward({x}); }
    EXPECT_EQ(liveBytes(), before);
  }
}

const char* const kNorm = R"(
def forward(self, x: Tensor, train: bool) -> Tensor:
    h = torch.tanh(x)
    h = torch.batch_norm(h, self.w, self.b, self.running_mean, self.running_var, train, 0.1, 1e-5,
                         True)
    return torch.sigmoid(torch.tanh(h) * 2.0)
)";

Module normModule() {
  return makeModule(kNorm, {{"w", randomTensor({3})}, {"b", randomTensor({3})}},
                    {{"running_mean", randomTensor({3})}, {"running_var", at::rand({3}) + 0.5}});
}

/// Gradients of x, w and b of a forward in evaluation mode, when a forward in training mode, whose
/// running statistics move, lies between it and its backward.
Tensors evaluationThenTraining(Module& module, const at::Tensor& x) {
  const at::Tensor y = module.forward({x, false}).toTensor();
  for (int i = 0; i < 3; ++i) {
    module.forward({x.detach() * 5.0, true});
  }
  return torch::autograd::grad({y.sum()},
                               {x, module.attr("w").toTensor(), module.attr("b").toTensor()});
}

TEST_F(SilentErrors, NormInEvaluationModeThenTrainingForwardThenBackward) {
  // Plain autograd reads the moved statistics where the norm saved them; everything behind the norm
  // must be that of the forward.
  const Module module = normModule();
  const at::Tensor x = randomTensor({5, 3}, true);
  Module plain = copyOf(module);
  Module remat = optimized(module);
  const Tensors expected = evaluationThenTraining(plain, x);
  replayedNodes();
  const Tensors actual = evaluationThenTraining(remat, x);
  EXPECT_EQ(replayedNodes(), 3);  // tanh, batch_norm, tanh
  expectSame(expected, actual, "gradient");
}

TEST_F(SilentErrors, RunningStatisticsMoveOncePerStep) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    self.num_batches_tracked.add_(1)
    h = torch.batch_norm(torch.tanh(x), self.w, self.b, self.running_mean, self.running_var, True,
                         0.1, 1e-5, True)
    return torch.sigmoid(torch.tanh(h))
)",
                                   {{"w", randomTensor({3})}, {"b", randomTensor({3})}},
                                   {{"running_mean", at::zeros({3})},
                                    {"running_var", at::ones({3})},
                                    {"num_batches_tracked", at::zeros({}, at::kLong)}});
  expectTrainsAlike(module, {randomTensor({5, 3}, true)});
  Module remat = optimized(module);
  step(remat, {randomTensor({5, 3}, true)});
  EXPECT_GT(replayedNodes(), 2);
  EXPECT_EQ(remat.attr("num_batches_tracked").toTensor().item<int64_t>(), 1);
}

TEST_F(SilentErrors, InstanceNormMovesItsRunningStatisticsOncePerStep) {
  for (const bool input_statistics : {true, false}) {
    const Module module =
        makeModule(R"(
def forward(self, x: Tensor, use_input_stats: bool) -> Tensor:
    h = torch.instance_norm(torch.tanh(x), self.w, self.b, self.running_mean, self.running_var,
                            use_input_stats, 0.1, 1e-5, True)
    return torch.sigmoid(torch.tanh(h))
)",
                   {{"w", randomTensor({3})}, {"b", randomTensor({3})}},
                   {{"running_mean", randomTensor({3})}, {"running_var", at::rand({3}) + 0.5}});
    expectTrainsAlike(module, {randomTensor({2, 3, 4, 4}, true), input_statistics});
  }
}

const char* const kDropout = R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.dropout(torch.tanh(x @ self.w), 0.4, True)
    return torch.sigmoid(torch.dropout(torch.gelu(h @ self.w), 0.3, True))
)";

TEST_F(SilentErrors, DropoutIsReplayedWithTheSameMaskAndAnUntouchedGenerator) {
  const Module module = makeModule(kDropout, weight());
  expectTrainsAlike(module, {randomTensor({64, 4}, true)});
  expectTrainsAlike(module, {randomTensor({64, 4}, true)}, {"remat::dropout_mask"});
  expectTrainsAlike(module, {randomTensor({64, 4}, true)}, {"remat::dropout"});
}

TEST_F(SilentErrors, DrawsBetweenForwardAndBackwardDoNotMoveTheMask) {
  const Module module = makeModule(kDropout, weight());
  const auto gradients = [](Module trained, const at::Tensor& x) {
    at::manual_seed(3);
    const at::Tensor y = trained.forward({x}).toTensor();
    at::rand({17});
    at::randn({3});
    Tensors result = torch::autograd::grad({y.sum()}, {x, trained.attr("w").toTensor()});
    result.push_back(at::randn({5}));
    return result;
  };
  const at::Tensor x = randomTensor({64, 4}, true);
  expectSame(gradients(copyOf(module), x), gradients(optimized(module), x), "gradient or draw");
}

}  // namespace
}  // namespace remat::runtime::test
