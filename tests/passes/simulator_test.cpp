#include "passes/simulator.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/plan.h"
#include "tests/passes/reference_simulator.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

using testing::ProfileBuilder;
using Op = ProfileBuilder::Op;

std::vector<char> keepAllBut(const Simulator& simulator, const std::vector<int32_t>& dropped) {
  std::vector<char> keep = simulator.keepAll();
  for (int32_t storage : dropped) keep[storage] = 0;
  return keep;
}

int32_t storageOf(const PlanningInput& input, int32_t value) {
  return input.profile.values[value].storages.front();
}

TEST(SimulatorTest, KeepingEverythingReproducesTheMeasuredPeak) {
  for (const PlanningInput& input :
       {testing::uniformChain(10, 100, 1), testing::convChain(6, 1 << 20),
        testing::bottleneckNet({3, 4, 6, 3}), testing::transformer(4, 384)}) {
    Simulator simulator(input);
    EXPECT_TRUE(simulator.consistent());
    EXPECT_EQ(simulator.evaluate(simulator.keepAll()).recompute_seconds, 0);
  }
}

TEST(SimulatorTest, EqualsTheReferenceOnRandomPlansOfRandomProfiles) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    const int ops = 4 + static_cast<int>(random() % 14);
    const PlanningInput input = testing::randomProfile(random, ops, /*casts=*/trial % 3 == 0);
    Simulator simulator(input);
    for (int plan = 0; plan < 6; ++plan) {
      std::vector<char> keep = simulator.keepAll();
      const uint64_t share = random() % 4;
      const bool each_time = random() % 2 == 0;
      for (char& flag : keep) {
        flag = random() % 4 < share;
        if (flag == ir::kRecompute && each_time && random() % 2 == 0) flag = ir::kRecomputeEachTime;
      }
      const Evaluation expected = testing::simulateByReference(input, keep);
      const Evaluation actual = simulator.evaluate(keep);
      ASSERT_EQ(actual.peak, expected.peak) << "trial " << trial << ", plan " << plan;
      ASSERT_NEAR(actual.recompute_seconds, expected.recompute_seconds, 1e-9) << "trial " << trial;
      const Timeline timeline = simulator.trace(keep);
      ASSERT_EQ(timeline.evaluation.peak, expected.peak);
      ASSERT_EQ(timeline.peak_at[timeline.evaluation.peak_instant], expected.peak);
    }
  }
}

TEST(SimulatorTest, OneDecisionChangedIsAsSimulatedFromScratchAndCostsFarLess) {
  std::mt19937_64 random(17);
  const PlanningInput input = testing::transformer(40, 384);
  Simulator simulator(input);
  const std::vector<int32_t> decisions = simulator.candidates();
  std::vector<char> keep = simulator.keepAll();
  for (int32_t storage : decisions) keep[storage] = random() % 2 == 0;
  const int64_t unspent = simulator.work();
  simulator.evaluate(keep);
  const int64_t whole = simulator.work() - unspent;
  EvaluationLimits limits;
  limits.soft_peak = input.profile.peak_bytes / 3;
  const int64_t before = simulator.work();
  const int changes = 300;
  for (int change = 0; change < changes; ++change) {
    keep[decisions[random() % decisions.size()]] = static_cast<char>(random() % 3);
    const Evaluation near = simulator.evaluate(keep, limits);
    const Evaluation fresh = Simulator(input).evaluate(keep, limits);
    ASSERT_EQ(near.peak, fresh.peak) << change;
    ASSERT_EQ(near.recompute_seconds, fresh.recompute_seconds) << change;
    ASSERT_EQ(near.excess, fresh.excess) << change;
    ASSERT_EQ(near.peak_instant, fresh.peak_instant) << change;
  }
  EXPECT_LT((simulator.work() - before) / changes, whole / 20);
}

// x → a → b → c, each saving its input of 100 bytes; results 100 bytes.
TEST(SimulatorTest, AChainIsRecomputedOnceAndItsBoundaryGoesWithTheLastHandle) {
  const PlanningInput input = testing::uniformChain(4, 100, 1);
  Simulator simulator(input);
  ASSERT_EQ(simulator.candidates().size(), 3u);
  const std::vector<int32_t> all = simulator.candidates();
  // Everything dropped: the last op's unpack replays the three producers, from the argument.
  const Evaluation none = simulator.evaluate(keepAllBut(simulator, all));
  EXPECT_DOUBLE_EQ(none.recompute_seconds, 3);
  // The middle one kept: the other two are replayed.
  const Evaluation middle = simulator.evaluate(keepAllBut(simulator, {all[0], all[2]}));
  EXPECT_DOUBLE_EQ(middle.recompute_seconds, 2);
  const Timeline timeline = simulator.trace(keepAllBut(simulator, {all[0], all[2]}));
  EXPECT_TRUE(timeline.persists[all[1]]);
  EXPECT_FALSE(timeline.persists[all[0]]);
  EXPECT_LT(timeline.last_alive[all[0]], timeline.forward_instants);
  EXPECT_GE(timeline.replay_first[all[2]], timeline.forward_instants);
  EXPECT_LE(timeline.last_alive[all[1]], timeline.replay_first[all[0]]);
}

TEST(SimulatorTest, AViewAndItsSourceAreOneDecision) {
  ProfileBuilder builder;
  const int32_t x = builder.argument(100, false);
  const int32_t gelu = builder.add({"gelu", 1, {x}, {400}});
  const int32_t view = builder.add({"dropout", 0.5, {gelu}, {}, {0}});
  const int32_t linear = builder.add({"linear", 5, {view}, {100}, {}, false, {view}});
  const PlanningInput input = builder.finish({builder.add({"relu", 1, {linear}, {100}})});
  Simulator simulator(input);
  const int32_t storage = storageOf(input, gelu);
  ASSERT_EQ(storageOf(input, view), storage);
  const Timeline dropped = simulator.trace(keepAllBut(simulator, {storage}));
  EXPECT_DOUBLE_EQ(dropped.evaluation.recompute_seconds, 1.5);
  EXPECT_FALSE(dropped.persists[storage]);
  EXPECT_GE(dropped.replay_first[storage], dropped.forward_instants);
}

TEST(SimulatorTest, AValueThatNoSlotReachesHoldsNoBoundary) {
  ProfileBuilder builder;
  const int32_t x = builder.argument(100, false);
  const int32_t a = builder.add({"a", 1, {x}, {100}});
  const int32_t b = builder.add({"b", 1, {a}, {100}});
  const int32_t c = builder.add({"c", 1, {b}, {100}});
  const PlanningInput input = builder.finish({c});
  Simulator simulator(input);
  const Timeline timeline = simulator.trace(keepAllBut(simulator, {storageOf(input, b)}));
  EXPECT_EQ(timeline.evaluation.recompute_seconds, 0);
  EXPECT_FALSE(timeline.persists[storageOf(input, a)]);
  EXPECT_FALSE(timeline.persists[storageOf(input, b)]);
}

TEST(SimulatorTest, AResidualStreamStaysUntilItsLastDependentReplay) {
  ProfileBuilder builder;
  const int32_t x = builder.argument(100, false);
  const int32_t stream = builder.add({"embed", 1, {x}, {100}});
  const int32_t branch = builder.add({"norm", 2, {stream}, {100}});
  const int32_t wide = builder.add({"linear", 4, {branch}, {400}, {}, false, {branch}});
  const int32_t sum = builder.add({"add", 1, {stream, wide}, {100}});
  const PlanningInput input =
      builder.finish({builder.add({"head", 1, {sum}, {10}, {}, false, {sum}})});
  Simulator simulator(input);
  // `stream` is saved by nobody, but the replay of `norm` starts from it.
  const Timeline timeline = simulator.trace(keepAllBut(simulator, {storageOf(input, branch)}));
  EXPECT_TRUE(timeline.persists[storageOf(input, stream)]);
  EXPECT_DOUBLE_EQ(timeline.evaluation.recompute_seconds, 2);
  // Dropping it too makes it part of the replay.
  const Evaluation both = simulator.evaluate(
      keepAllBut(simulator, {storageOf(input, branch), storageOf(input, stream)}));
  EXPECT_DOUBLE_EQ(both.recompute_seconds, 3);
}

TEST(SimulatorTest, AReplayMakesTheOpsInternalsAndScratchAgainForItsDuration) {
  auto build = [](int64_t internal, int64_t scratch) {
    ProfileBuilder builder;
    const int32_t x = builder.argument(100, false);
    const int32_t a = builder.add({"pool", 1, {x}, {100}, {}, false, {}, internal, scratch});
    const int32_t b = builder.add({"b", 1, {a}, {100}, {}, false, {a}});
    const int32_t c = builder.add({"c", 1, {b}, {100}, {}, false, {b}});
    return builder.finish({builder.add({"d", 1, {c}, {100}, {}, false, {c}})});
  };
  const PlanningInput plain = build(0, 0);
  const PlanningInput heavy = build(1000, 500);
  Simulator a(plain);
  Simulator b(heavy);
  const Evaluation without = a.evaluate(keepAllBut(a, a.candidates()));
  const Evaluation with = b.evaluate(keepAllBut(b, b.candidates()));
  EXPECT_DOUBLE_EQ(with.recompute_seconds, without.recompute_seconds);
  // The saved internal is there all the time; its copy and the scratch join it while `pool` is
  // replayed.
  EXPECT_EQ(with.peak, 1000 + 1000 + 500 + 100 + /*result and its gradients*/ 100);
}

TEST(SimulatorTest, AnUnwantedResultOfAReplayedOpIsDroppedAtOnce) {
  ProfileBuilder builder;
  const int32_t x = builder.argument(100, false);
  const int32_t pair = builder.add({"split", 1, {x}, {100, 300}});
  const int32_t a = builder.add({"a", 1, {pair}, {100}, {}, false, {pair}});
  const int32_t b = builder.add({"b", 1, {pair + 1}, {10}});
  const PlanningInput input = builder.finish({builder.add({"c", 1, {a, b}, {10}})});
  Simulator simulator(input);
  const int32_t unwanted = storageOf(input, pair + 1);
  const Timeline timeline =
      simulator.trace(keepAllBut(simulator, {storageOf(input, pair), unwanted}));
  EXPECT_GE(timeline.replay_first[unwanted], timeline.forward_instants);
  EXPECT_EQ(timeline.replay_last[unwanted], timeline.replay_first[unwanted]);
  EXPECT_GT(timeline.replay_last[storageOf(input, pair)],
            timeline.replay_first[storageOf(input, pair)]);
}

TEST(SimulatorTest, AListHoldsWhatItWasMadeOf) {
  ProfileBuilder builder;
  const int32_t x = builder.argument(100, false);
  const int32_t a = builder.add({"a", 1, {x}, {100}});
  const int32_t b = builder.add({"b", 1, {x}, {200}});
  const int32_t list = builder.add({"list", 0.25, {a, b}, {}, {}, true});
  const int32_t cat = builder.add({"cat", 1, {list}, {300}, {}, false, {list}});
  const PlanningInput input = builder.finish({builder.add({"c", 1, {cat}, {10}})});
  Simulator simulator(input);
  // The slot is on a's storage; the list needs b too, kept or recomputed.
  const Timeline one = simulator.trace(keepAllBut(simulator, {storageOf(input, a)}));
  EXPECT_DOUBLE_EQ(one.evaluation.recompute_seconds, 1.25);
  EXPECT_TRUE(one.persists[storageOf(input, b)]);
  const Evaluation both =
      simulator.evaluate(keepAllBut(simulator, {storageOf(input, a), storageOf(input, b)}));
  EXPECT_DOUBLE_EQ(both.recompute_seconds, 2.25);
}

TEST(SimulatorTest, WhatMayNotBeReplayedIsNoCandidate) {
  ProfileBuilder builder;
  const int32_t x = builder.argument(100, false);
  Op random{"rand", 1, {x}, {100}};
  random.replayable = false;
  const int32_t noise = builder.add(random);
  const int32_t small = builder.add({"small", 1, {noise}, {10}, {}, false, {noise}});
  PlanningInput input = builder.finish({builder.add({"c", 1, {small}, {50}, {}, false, {small}})});
  EXPECT_EQ(Simulator(input).candidates(), std::vector<int32_t>{storageOf(input, small)});
  input.minimum_bytes = 11;
  EXPECT_TRUE(Simulator(input).candidates().empty());
}

TEST(SimulatorTest, AWalkEndsEarlyAboveALimit) {
  const PlanningInput input = testing::uniformChain(10, 100, 1);
  Simulator simulator(input);
  EvaluationLimits limits;
  limits.peak = 300;
  EXPECT_TRUE(simulator.evaluate(simulator.keepAll(), limits).aborted);
  limits.peak = input.profile.peak_bytes;
  EXPECT_FALSE(simulator.evaluate(simulator.keepAll(), limits).aborted);
  limits.recompute_seconds = 1.5;
  EXPECT_TRUE(simulator.evaluate(keepAllBut(simulator, simulator.candidates()), limits).aborted);
}

TEST(SimulatorTest, RefusesFlagsThatDoNotFitTheProfile) {
  PlanningInput input = testing::uniformChain(3, 100, 1);
  input.replayable.pop_back();
  EXPECT_THROW(Simulator{input}, std::invalid_argument);
}

}  // namespace
}  // namespace remat
