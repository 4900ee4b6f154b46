// Draws on an accelerator, which is a fake, with its DeviceInterface and without.

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <mutex>
#include <thread>

#include "runtime/generator_state.h"
#include "tests/runtime/fake_accelerator.h"
#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class DeviceGeneratorTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    registerFakeDevice();
    setFakeInterface(true);
    seedFakeDevices(5);
    takeFakeEvents();
  }
  void TearDown() override {
    setFakeInterface(true);
    for (int device = 0; device < kFakeDevices; ++device) setFakeCapture(device, 0);
    RuntimeTest::TearDown();
  }

  static at::Tensor drawn(int device, const std::optional<at::Generator>& generator) {
    return at::empty({64}, fake(device)).bernoulli_(0.5, generator);
  }
  static at::Tensor next(int device) { return drawn(device, std::nullopt).cpu(); }
};

TEST_F(DeviceGeneratorTest, DrawsAndMovesAsAPlainDraw) {
  for (const bool interface : {true, false}) {
    setFakeInterface(interface);
    for (const int device : {0, 1}) {
      seedFakeDevices(7);
      const at::Tensor expected = drawn(device, std::nullopt).cpu();
      const at::Tensor expected_next = next(device);
      const at::Tensor expected_other = next(1 - device);
      seedFakeDevices(7);
      at::Tensor actual;
      const RepeatableDraw draw(fake(device), [&](at::Generator g) { actual = drawn(device, g); });
      expectSame({expected, expected_next, expected_other},
                 {actual.cpu(), next(device), next(1 - device)}, "draw");
      for (int i = 0; i < 3; ++i) {
        at::Tensor again;
        draw.again([&](at::Generator g) { again = drawn(device, g); });
        expectSame({expected}, {again.cpu()}, "again");
      }
      const at::Tensor after = next(device);
      seedFakeDevices(7);
      next(device);
      next(device);
      expectSame({next(device)}, {after}, "the caller's stream");
    }
  }
}

TEST_F(DeviceGeneratorTest, NeitherWaitsNorSavesWholeStates) {
  const RepeatableDraw draw(fake(0), [](at::Generator g) { drawn(0, g); });
  draw.again([](at::Generator g) { drawn(0, g); });
  FakeEvents events = takeFakeEvents();
  EXPECT_EQ(events.waits, std::vector<std::string>());
  EXPECT_EQ(events.saved_states, 0);
  // Without an interface there is no other way.
  setFakeInterface(false);
  const RepeatableDraw whole(fake(0), [](at::Generator g) { drawn(0, g); });
  EXPECT_GT(takeFakeEvents().saved_states, 0);
}

TEST_F(DeviceGeneratorTest, ADrawThatThrowsMovesNothing) {
  const at::Tensor expected = next(0);
  seedFakeDevices(5);
  EXPECT_ANY_THROW(RepeatableDraw(fake(0), [](at::Generator g) {
    drawn(0, g);
    TORCH_CHECK(false, "no memory");
  }));
  expectSame({expected}, {next(0)}, "next");
}

TEST_F(DeviceGeneratorTest, NoLockIsHeldWhileADrawRuns) {
  at::Generator generator = at::globalContext().defaultGenerator(fake(0));
  const RepeatableDraw draw(fake(0), [&](at::Generator g) {
    std::thread other([&] { const std::lock_guard<std::mutex> lock(generator.mutex()); });
    other.join();
    drawn(0, g);
  });
}

TEST_F(DeviceGeneratorTest, ADrawThatAnotherOneCameBeforeIsMadeAnew) {
  const at::Tensor first = next(0);
  const at::Tensor second = next(0);
  const at::Tensor third = next(0);
  seedFakeDevices(5);
  int calls = 0;
  at::Tensor between;
  at::Tensor ours;
  const RepeatableDraw draw(fake(0), [&](at::Generator g) {
    if (calls++ == 0) between = next(0);
    ours = drawn(0, g);
  });
  EXPECT_EQ(calls, 2);
  expectSame({first, second, third}, {between, ours.cpu(), next(0)}, "draws");
  draw.again([&](at::Generator g) { ours = drawn(0, g); });
  expectSame({second}, {ours.cpu()}, "again");
}

TEST_F(DeviceGeneratorTest, ACapturedDrawIsMadeAgainInThatCaptureOnly) {
  const auto make = [] {
    return std::make_unique<RepeatableDraw>(fake(0), [](at::Generator g) { drawn(0, g); });
  };
  const auto again = [](const RepeatableDraw& draw) {
    return errorOf([&] { draw.again([](at::Generator g) { drawn(0, g); }); });
  };
  const auto outside = make();
  setFakeCapture(0, 11);
  const auto inside = make();
  EXPECT_EQ(again(*inside), "");
  EXPECT_NE(
      again(*outside).find("drawn outside of a graph's capture have to be drawn again inside"),
      std::string::npos);
  setFakeCapture(0, 12);
  EXPECT_NE(again(*inside).find("while a graph was captured have to be drawn again while another"),
            std::string::npos);
  setFakeCapture(0, 0);
  EXPECT_NE(again(*inside).find("while a graph was captured have to be drawn again outside of it"),
            std::string::npos);
  EXPECT_EQ(again(*outside), "");
  // Captures are of a device: another one's don't count.
  setFakeCapture(1, 13);
  EXPECT_EQ(again(*outside), "");
}

TEST_F(DeviceGeneratorTest, ARegionThatDrawsTrainsInsideOfOneCapture) {
  const Module module = makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.sin(torch.dropout(torch.tanh(x), 0.5, True))
)");
  Module plain = copyOf(module);
  Module remat = optimized(module);
  const at::Tensor x = randomTensor({64});
  const auto train = [&](Module& trained, uint64_t forward, uint64_t backward) {
    seedFakeDevices(2);
    const at::Tensor input = x.to(fake(0)).set_requires_grad(true);
    setFakeCapture(0, forward);
    const at::Tensor y = trained.forward({input}).toTensor();
    setFakeCapture(0, backward);
    y.sum().backward();
    setFakeCapture(0, 0);
    return input.grad().cpu();
  };
  expectSame({train(plain, 0, 0)}, {train(remat, 21, 21)}, "gradient");
  const std::string error = errorOf([&] { train(remat, 21, 22); });
  EXPECT_NE(error.find("Capture forward and backward in one graph"), std::string::npos) << error;
  setFakeCapture(0, 0);
  expectSame({train(plain, 0, 0)}, {train(remat, 0, 0)}, "gradient after the error");
}

TEST_F(DeviceGeneratorTest, ThreadsDrawOneStreamTogether) {
  constexpr int kDraws = 50;
  constexpr int kThreads = 3;
  const auto rows = [](const std::vector<Tensors>& drawn) {
    std::vector<std::string> texts;
    for (const Tensors& of_thread : drawn) {
      for (const at::Tensor& draw : of_thread) {
        std::string text;
        for (int64_t i = 0; i < draw.numel(); ++i) text += draw[i].item<float>() == 0 ? '0' : '1';
        texts.push_back(text);
      }
    }
    std::sort(texts.begin(), texts.end());
    return texts;
  };
  std::vector<Tensors> expected(1);
  for (int i = 0; i < kThreads * kDraws; ++i) expected[0].push_back(next(0));
  seedFakeDevices(5);
  std::vector<Tensors> actual(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kDraws; ++i) {
        at::Tensor draw;
        const RepeatableDraw repeatable(fake(0), [&](at::Generator g) { draw = drawn(0, g); });
        actual[thread].push_back(draw.cpu());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rows(expected), rows(actual));
}

}  // namespace
}  // namespace remat::runtime::test
