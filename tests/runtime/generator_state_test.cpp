#include "runtime/generator_state.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

class GeneratorStateTest : public RuntimeTest {};

using Draw = std::function<at::Tensor(const std::optional<at::Generator>&)>;

/// Draws of every kind: with and without a normal number left over in the generator.
std::vector<Draw> draws() {
  return {
      [](const std::optional<at::Generator>& g) { return at::empty({7}).bernoulli_(0.3, g); },
      [](const std::optional<at::Generator>& g) { return at::empty({1000}).bernoulli_(0.3, g); },
      [](const std::optional<at::Generator>& g) { return at::empty({5}).uniform_(0, 1, g); },
      [](const std::optional<at::Generator>& g) { return at::empty({3}).normal_(0, 1, g); },
      [](const std::optional<at::Generator>& g) {
        return at::empty({3}, at::kDouble).normal_(0, 1, g);
      },
      [](const std::optional<at::Generator>& g) { return at::empty({64}).normal_(0, 1, g); },
      [](const std::optional<at::Generator>& g) { return at::empty({6}).exponential_(1, g); },
  };
}

Tensors nextDraws() { return {at::randn({3}), at::randn({1}, at::kDouble), at::rand({5})}; }

TEST_F(GeneratorStateTest, TheFirstDrawIsAPlainOneAndLeavesThePlainState) {
  for (const Draw& draw : draws()) {
    // An odd number of normals before leaves one cached in the generator.
    for (const int64_t before : {0, 1}) {
      at::manual_seed(3);
      at::randn({before});
      const at::Tensor expected = draw(std::nullopt);
      const Tensors expected_next = nextDraws();
      at::manual_seed(3);
      at::randn({before});
      at::Tensor actual;
      const RepeatableDraw repeatable(at::kCPU, [&](at::Generator g) { actual = draw(g); });
      expectSame({expected}, {actual}, "draw");
      expectSame(expected_next, nextDraws(), "next");
    }
  }
}

TEST_F(GeneratorStateTest, AgainGivesTheSameAndMovesNothing) {
  for (const Draw& draw : draws()) {
    at::Tensor first;
    const RepeatableDraw repeatable(at::kCPU, [&](at::Generator g) { first = draw(g); });
    at::manual_seed(9);
    const Tensors expected_next = nextDraws();
    at::manual_seed(9);
    for (int i = 0; i < 3; ++i) {
      at::Tensor again;
      repeatable.again([&](at::Generator g) { again = draw(g); });
      expectSame({first}, {again}, "draw");
    }
    expectSame(expected_next, nextDraws(), "next");
  }
}

TEST_F(GeneratorStateTest, OtherThreadsDrawNeitherInBetweenNorTheSame) {
  constexpr int kThreads = 3;
  constexpr int kDraws = 1000;
  constexpr int kRepeatable = 100;
  at::manual_seed(4);
  const at::Tensor stream = at::empty({kThreads * kDraws + 8 * kRepeatable}).uniform_(0, 1);
  at::manual_seed(4);
  std::vector<Tensors> drawn(kThreads + 1);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::atomic<bool> started{false};
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      while (!started) {
      }
      for (int k = 0; k < kDraws; ++k) {
        drawn[i].push_back(at::empty({1}).uniform_(0, 1));
      }
    });
  }
  started = true;
  for (int i = 0; i < kRepeatable; ++i) {
    at::Tensor parts[2];
    const RepeatableDraw repeatable(at::kCPU, [&](at::Generator g) {
      parts[0] = at::empty({4}).uniform_(0, 1, g);
      std::this_thread::yield();
      parts[1] = at::empty({4}).uniform_(0, 1, g);
    });
    drawn[kThreads].push_back(at::cat({parts[0], parts[1]}));
  }
  for (auto& thread : threads) {
    thread.join();
  }
  // All numbers of all threads are those of the one stream, each of them once ...
  Tensors all;
  for (const Tensors& of_thread : drawn) {
    all.insert(all.end(), of_thread.begin(), of_thread.end());
  }
  EXPECT_TRUE(at::equal(std::get<0>(at::cat(all).sort()), std::get<0>(stream.sort())));
  // ... and those of one draw are neighbours.
  const at::Tensor eights = stream.unfold(0, 8, 1);
  for (const at::Tensor& draw : drawn[kThreads]) {
    EXPECT_TRUE(eights.eq(draw).all(1).any().item<bool>());
  }
}

TEST_F(GeneratorStateTest, ADrawThatThrowsMovesNothingAndUnlocks) {
  at::manual_seed(6);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(6);
  EXPECT_THROW(RepeatableDraw(at::kCPU,
                              [](at::Generator g) {
                                at::empty({4}).uniform_(0, 1, g);
                                throw std::runtime_error("no memory");
                              }),
               std::runtime_error);
  expectSame({expected}, {at::rand({4})}, "next");
}

}  // namespace
}  // namespace remat::runtime::test
