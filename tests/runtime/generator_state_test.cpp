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

using Draw = std::function<at::Tensor(std::optional<at::Generator>)>;

/// Draws of every kind: with and without a normal number left over in the generator.
std::vector<Draw> draws() {
  return {
      [](std::optional<at::Generator> g) { return at::empty({7}).bernoulli_(0.3, g); },
      [](std::optional<at::Generator> g) { return at::empty({1000}).bernoulli_(0.3, g); },
      [](std::optional<at::Generator> g) { return at::empty({5}).uniform_(0, 1, g); },
      [](std::optional<at::Generator> g) { return at::empty({3}).normal_(0, 1, g); },
      [](std::optional<at::Generator> g) { return at::empty({3}, at::kDouble).normal_(0, 1, g); },
      [](std::optional<at::Generator> g) { return at::empty({64}).normal_(0, 1, g); },
      [](std::optional<at::Generator> g) { return at::empty({6}).exponential_(1, g); },
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

TEST_F(GeneratorStateTest, OtherThreadsDoNotDrawInBetween) {
  at::manual_seed(4);
  const at::Tensor stream = at::empty({60000}).uniform_(0, 1);
  at::manual_seed(4);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000 && !stop; ++k) {
        at::empty({1}).uniform_(0, 1);
        std::this_thread::yield();
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    at::Tensor parts[2];
    const RepeatableDraw repeatable(at::kCPU, [&](at::Generator g) {
      parts[0] = at::empty({4}).uniform_(0, 1, g);
      std::this_thread::yield();
      parts[1] = at::empty({4}).uniform_(0, 1, g);
    });
    const at::Tensor drawn = at::cat({parts[0], parts[1]});
    // Eight neighbours of the one stream.
    const at::Tensor starts = at::nonzero(stream.narrow(0, 0, 59990).eq(drawn[0])).view(-1);
    bool found = false;
    for (int64_t s = 0; s < starts.numel(); ++s) {
      found |= at::equal(stream.narrow(0, starts[s].item<int64_t>(), 8), drawn);
    }
    EXPECT_TRUE(found) << i;
  }
  stop = true;
  for (auto& thread : threads) {
    thread.join();
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
