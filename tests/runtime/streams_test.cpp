// Streams, devices' threads, draws and waits, on an accelerator that is a fake
// (fake_accelerator.h).

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>

#include "runtime/statistics.h"
#include "tests/runtime/fake_accelerator.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What follows runs on another stream, which has waited for this one and keeps `x` from being
/// freed too early, as a program does that uses side streams.
struct SwitchStream : public torch::autograd::Function<SwitchStream> {
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& x, int64_t stream) {
    const c10::impl::VirtualGuardImpl guard(x.device().type());
    const c10::Stream from = guard.getStream(x.device());
    const c10::Stream to = fakeStream(x.device().index(), static_cast<int>(stream));
    c10::Event event(x.device().type());
    event.record(from);
    event.block(to);
    guard.recordDataPtrOnStream(x.storage().data_ptr(), to);
    guard.exchangeStream(to);
    return x.clone();
  }
  static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

const torch::jit::RegisterOperators kSwitch({torch::jit::Operator(
    "aten::switch_stream(Tensor x, int stream) -> Tensor",
    [](torch::jit::Stack& stack) {
      const int64_t stream = torch::jit::pop(stack).toInt();
      const at::Tensor x = torch::jit::pop(stack).toTensor();
      stack.emplace_back(SwitchStream::apply(x, stream));
    },
    c10::AliasAnalysisKind::FROM_SCHEMA)});

const std::string kSwitchKind = "aten::switch_stream";

at::Tensor onFake(const at::Tensor& tensor, int device = 0) {
  return tensor.detach().to(fake(device)).set_requires_grad(tensor.requires_grad());
}

/// What a step left behind, on the CPU, and what happened during it.
struct FakeStep {
  Tensors results;  ///< outputs, then the gradients of parameters and of the input
  FakeEvents forward;
  FakeEvents backward;
};

class StreamsTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    registerFakeDevice();
    enableStatistics(false);
    takeFakeEvents();
  }

  /// The forward on stream `stream`, the backward called on `backward_stream`.
  static FakeStep takeStep(Module& module, const at::Tensor& x, int stream = 0,
                           int backward_stream = 0) {
    FakeStep taken;
    for (const at::Tensor& parameter : module.parameters()) {
      parameter.mutable_grad() = at::Tensor();
    }
    const at::Tensor input = onFake(x);
    Tensors roots;
    std::vector<at::Tensor> outputs;
    seedFakeDevices(3);
    const c10::StreamGuard restored(fakeStream(0, 0));
    const c10::impl::VirtualGuardImpl guard(fake(0).type());
    wait(fakeStream(0, stream), fakeStream(0, 0));
    guard.recordDataPtrOnStream(input.storage().data_ptr(), fakeStream(0, stream));
    guard.exchangeStream(fakeStream(0, stream));
    takeFakeEvents();
    outputs = tensorsIn(module.forward({input}));
    taken.forward = takeFakeEvents();
    for (const at::Tensor& output : outputs)
      roots.push_back(onFake(rootGradientOf(output), output.device().index()));
    const c10::Stream last = guard.getStream(fake(0));
    guard.exchangeStream(fakeStream(0, backward_stream));
    wait(fakeStream(0, backward_stream), last);
    takeFakeEvents();
    torch::autograd::backward(outputs, roots);
    taken.backward = takeFakeEvents();
    for (const int other : {0, 1, 2, 3, 4})
      wait(fakeStream(0, backward_stream), fakeStream(0, other));
    for (const at::Tensor& output : outputs) taken.results.push_back(output.detach().cpu());
    for (const at::Tensor& parameter : module.parameters()) {
      taken.results.push_back(parameter.grad().cpu());
    }
    taken.results.push_back(input.grad().cpu());
    return taken;
  }

  static at::Tensor rootGradientOf(const at::Tensor& output) {
    return rootGradient(at::empty(output.sizes()));
  }

  static void wait(const c10::Stream& stream, const c10::Stream& other) {
    c10::Event event(stream.device_type());
    event.record(other);
    event.block(stream);
  }

  /// The same of both, and no race in either; returns what the optimised one did.
  static FakeStep expectAlike(const Module& module, const at::Tensor& x,
                              const std::vector<std::string>& keep = {}, int stream = 0,
                              int backward_stream = 0) {
    Module plain = copyOf(module);
    Module remat = optimized(module, keep);
    FakeStep actual;
    for (int i = 0; i < 3; ++i) {
      const FakeStep expected = takeStep(plain, x, stream, backward_stream);
      expectNoRace(expected, "plain");
      actual = takeStep(remat, x, stream, backward_stream);
      expectNoRace(actual, "optimised");
      expectSame(expected.results, actual.results, "step " + std::to_string(i));
    }
    return actual;
  }

  static void expectNoRace(const FakeStep& step, const std::string& what) {
    EXPECT_EQ(step.forward.races, std::vector<std::string>()) << what;
    EXPECT_EQ(step.backward.races, std::vector<std::string>()) << what;
  }

  static std::vector<int> streamsOf(const std::vector<FakeEvents::Run>& runs,
                                    const std::string& op) {
    std::vector<int> ids;
    for (const auto& run : runs) {
      if (run.op == op) ids.push_back(static_cast<int>(run.stream.id()));
    }
    return ids;
  }
};

Module layers(int device = 0) {
  return makeModule(
      R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(torch.matmul(x, self.w))
    return torch.tanh(torch.sigmoid(h) * self.v)
)",
      {{"w", onFake(randomTensor({8, 8}), device)}, {"v", onFake(randomTensor({8}), device)}});
}

TEST_F(StreamsTest, TheFakeFindsWhatIsNotOrdered) {
  const at::Tensor x = onFake(randomTensor({8}));
  {
    const c10::StreamGuard other(fakeStream(0, 1));
    x.sin();
  }
  EXPECT_EQ(takeFakeEvents().races.size(), 1) << "read without a wait";
  wait(fakeStream(0, 1), fakeStream(0, 0));
  {
    const c10::StreamGuard other(fakeStream(0, 1));
    x.sin();
  }
  EXPECT_EQ(takeFakeEvents().races.size(), 0);
  x.add_(1);
  EXPECT_EQ(takeFakeEvents().races.size(), 1) << "written while read";
  for (const bool told : {false, true}) {
    at::Tensor y = onFake(randomTensor({8}));
    wait(fakeStream(0, 1), fakeStream(0, 0));
    {
      const c10::StreamGuard other(fakeStream(0, 1));
      y.sin();
    }
    if (told) {
      c10::impl::VirtualGuardImpl(fake(0).type())
          .recordDataPtrOnStream(y.storage().data_ptr(), fakeStream(0, 1));
    }
    y = at::Tensor();
    EXPECT_EQ(takeFakeEvents().races.size(), told ? 0 : 1) << "freed while read";
  }
}

TEST_F(StreamsTest, AReplayRunsOnTheStreamOfItsForward) {
  for (const int stream : {0, 3}) {
    for (const int backward_stream : {0, 4}) {
      replayedNodes();
      enableStatistics(true);
      const FakeStep step =
          expectAlike(layers(), randomTensor({4, 8}, true), {}, stream, backward_stream);
      enableStatistics(false);
      EXPECT_GT(replayedNodes(), 0);
      const std::vector<int> ran = streamsOf(step.backward.runs, "aten::tanh");
      EXPECT_GE(ran.size(), 1);
      EXPECT_EQ(ran, std::vector<int>(ran.size(), stream));
    }
  }
}

TEST_F(StreamsTest, OneStreamNeedsNoEvents) {
  Module plain = layers();
  Module remat = optimized(plain);
  const at::Tensor x = randomTensor({4, 8}, true);
  const FakeStep expected = takeStep(plain, x);
  const FakeStep actual = takeStep(remat, x);
  EXPECT_EQ(expected.forward.recorded_events, actual.forward.recorded_events);
  EXPECT_EQ(expected.backward.recorded_events, actual.backward.recorded_events);
}

TEST_F(StreamsTest, AValueMayBeMadeOnOneStreamAndReadOnAnother) {
  // h is needed by nodes of two streams: whichever comes first makes it, from what stream 1 made,
  // the other one finds it there.
  const Module module =
      makeModule(R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
    h = torch.tanh(torch.matmul(x, self.w))
    a = torch.sin(torch.sigmoid(h) * self.v)
    g = torch.switch_stream(h, 2)
    b = torch.sin(g) * h
    return a, b * torch.cos(h)
)",
                 {{"w", onFake(randomTensor({8, 8}))}, {"v", onFake(randomTensor({8}))}});
  for (const auto& keep : std::vector<std::vector<std::string>>{
           {kSwitchKind}, {kSwitchKind, "aten::matmul"}, {kSwitchKind, "each time aten::tanh"}}) {
    for (const int backward_stream : {0, 1, 2, 3}) {
      const FakeStep step =
          expectAlike(module, randomTensor({4, 8}, true), keep, 1, backward_stream);
      const std::vector<int> ran = streamsOf(step.backward.runs, "aten::tanh");
      EXPECT_EQ(std::count(ran.begin(), ran.end(), 1) + std::count(ran.begin(), ran.end(), 2),
                ran.size());
      EXPECT_GE(std::count(ran.begin(), ran.end(), 2), 1) << "nothing was replayed on stream 2";
    }
  }
}

TEST_F(StreamsTest, ASavedTensorMayBeUnpackedOnAnyStream) {
  Module remat = optimized(makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(x)
    return h * torch.sin(h)
)"));
  const at::Tensor x = onFake(randomTensor({4, 8}, true));
  const at::Tensor y = remat.forward({x}).toTensor();
  takeFakeEvents();
  {
    // Outside of a backward nothing is cached: made on stream 2 from what the default one made.
    const c10::StreamGuard other(fakeStream(0, 2));
    (*y.grad_fn())({onFake(rootGradientOf(y))});
  }
  const FakeEvents events = takeFakeEvents();
  EXPECT_EQ(events.races, std::vector<std::string>());
  const std::vector<int> ran = streamsOf(events.runs, "aten::tanh");
  EXPECT_GE(ran.size(), 1);
  EXPECT_EQ(ran, std::vector<int>(ran.size(), 2));
}

TEST_F(StreamsTest, EvaluationStatisticsAreCopiedForAnyStream) {
  const Module module = makeModule(
      R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.batch_norm(torch.tanh(x), self.g, self.b, self.m, self.s, False, 0.1, 1e-5, False)
    g = torch.switch_stream(h, 2)
    return torch.sin(g) * h
)",
      {{"g", onFake(randomTensor({8}))}, {"b", onFake(randomTensor({8}))}},
      {{"m", onFake(randomTensor({8}))}, {"s", onFake(at::rand({8}) + 0.5)}});
  expectAlike(module, randomTensor({4, 8}, true), {kSwitchKind}, 1);
}

/// Draws on both devices, with the second half of the model on the second.
Module onTwoDevices() {
  return makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.dropout(torch.tanh(torch.matmul(x, self.w)), 0.5, True)
    k = torch.sigmoid(h)
    g = (k * h).to(self.v.device)
    y = torch.dropout(torch.tanh(g * self.v), 0.5, True)
    return torch.tanh(y)
)",
                    {{"w", onFake(randomTensor({8, 8}))}, {"v", onFake(randomTensor({8}), 1)}});
}

TEST_F(StreamsTest, ARegionMayUseSeveralDevices) {
  for (const bool interface : {true, false}) {
    setFakeInterface(interface);
    for (const int stream : {0, 3}) {
      SCOPED_TRACE(interface ? "with an interface" : "without");
      const FakeStep step =
          expectAlike(onTwoDevices(), randomTensor({4, 8}, true), {"aten::to"}, stream);
      for (const int device : {0, 1}) {
        EXPECT_TRUE(std::any_of(step.backward.runs.begin(), step.backward.runs.end(),
                                [&](const FakeEvents::Run& run) {
                                  return run.op == "aten::tanh" &&
                                         run.stream.device_index() == device;
                                }))
            << "nothing was replayed on device " << device;
      }
    }
  }
  setFakeInterface(true);
}

TEST_F(StreamsTest, ADeviceWithoutANumberIsThatOfTheForward) {
  Module remat = optimized(makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    z = torch.sin(torch.ones([8], device=torch.device("fake")))
    return x * z.to(x.device)
)"));
  const at::Tensor x = onFake(randomTensor({8}, true), 1);
  const at::Tensor y = remat.forward({x}).toTensor();
  takeFakeEvents();
  // On the engine's thread of device 1, which is current there.
  torch::autograd::backward({y}, {onFake(rootGradientOf(y), 1)});
  std::vector<int> devices;
  for (const FakeEvents::Run& run : takeFakeEvents().runs) {
    if (run.op == "aten::sin") devices.push_back(run.stream.device_index());
  }
  EXPECT_EQ(devices, std::vector<int>{0});
  EXPECT_TRUE(at::equal(x.grad().cpu(), rootGradientOf(y) * at::sin(at::ones({8}))));
}

TEST_F(StreamsTest, NothingWaitsForTheDevice) {
  for (const Module& module : {layers(), onTwoDevices()}) {
    Module plain = copyOf(module);
    Module remat = optimized(module);
    const at::Tensor x = randomTensor({4, 8}, true);
    const FakeStep expected = takeStep(plain, x, 1);
    const FakeStep actual = takeStep(remat, x, 1);
    EXPECT_EQ(expected.forward.waits, actual.forward.waits);
    EXPECT_EQ(expected.backward.waits, actual.backward.waits);
    EXPECT_EQ(actual.backward.waits, std::vector<std::string>());
    EXPECT_EQ(actual.forward.saved_states, 0);
    EXPECT_EQ(actual.backward.saved_states, 0);
  }
}

TEST_F(StreamsTest, StatisticsTakeTheirTimesFromEvents) {
  Module remat = optimized(layers());
  const at::Tensor x = randomTensor({4, 8}, true);
  takeStatistics();
  enableStatistics(true);
  const FakeStep step = takeStep(remat, x, 1);
  enableStatistics(false);
  EXPECT_EQ(step.forward.waits, std::vector<std::string>());
  EXPECT_EQ(step.backward.waits, std::vector<std::string>());
  const StepStatistics taken = takeStatistics();
  EXPECT_FALSE(takeFakeEvents().waits.empty());
  // The fake's operators take a millisecond each.
  EXPECT_NEAR(taken.forward_seconds, 1e-3 * static_cast<double>(step.forward.runs.size()), 5e-4);
  EXPECT_GE(taken.replayed_nodes, 2);
  EXPECT_GE(taken.replay_seconds, 2e-3 - 1e-9);
  EXPECT_LE(taken.replay_seconds, 1e-3 * static_cast<double>(step.backward.runs.size()));
}

TEST_F(StreamsTest, TwoThreadsUnpackAtOnce) {
  // The threads of two devices ask one frame for h, which is made on stream 3 of device 0 in one of
  // them and on its default stream in the other. No gradient goes from one to the other, which
  // would have the engine order them.
  const Module module =
      makeModule(R"(
def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
    h = torch.tanh(torch.matmul(x, self.w))
    k = torch.sigmoid(h.detach()).to(self.v.device)
    return torch.sin(h) * torch.cos(h), torch.tanh(k * self.v) * k
)",
                 {{"w", onFake(randomTensor({8, 8}))}, {"v", onFake(randomTensor({8}), 1)}});
  Module plain = copyOf(module);
  Module remat = optimized(module);
  const at::Tensor x = randomTensor({4, 8}, true);
  const FakeStep expected = takeStep(plain, x, 3);
  expectNoRace(expected, "plain");
  for (int i = 0; i < 200; ++i) {
    const FakeStep actual = takeStep(remat, x, 3);
    expectNoRace(actual, "optimised");
    expectSame(expected.results, actual.results, "result");
    EXPECT_FALSE(streamsOf(actual.backward.runs, "aten::sigmoid").empty()) << "no replay";
  }
}

}  // namespace
}  // namespace remat::runtime::test
