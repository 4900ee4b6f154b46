#include "passes/lower_bound.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/plan.h"
#include "passes/simulator.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

constexpr int kRounds = 60;
constexpr uint64_t kSteps = 400;

/// A random step in which even the smallest storages may be recomputed.
Simulator randomStep(std::mt19937_64& random, int ops) {
  PlanningInput input = testing::randomProfile(random, ops, /*casts=*/ops % 2 == 0);
  input.minimum_bytes = 1;
  return Simulator(input);
}

/// Decisions of all three kinds; `kept` of 10 are kept.
std::vector<char> randomPlan(const Simulator& simulator, std::mt19937_64& random, uint64_t kept) {
  std::vector<char> keep = simulator.keepAll();
  for (int32_t storage : simulator.candidates()) {
    const bool keeps = random() % 10 < kept;
    const bool each_time = random() % 4 == 0;
    keep[storage] = static_cast<char>(keeps       ? ir::kKeep
                                      : each_time ? ir::kRecomputeEachTime
                                                  : ir::kRecompute);
  }
  return keep;
}

TEST(LowerBound, EveryPlanHoldsTheBase) {
  for (uint64_t seed = 1; seed <= kSteps; ++seed) {
    std::mt19937_64 random(seed);
    Simulator simulator = randomStep(random, 8 + static_cast<int>(seed % 40));
    const LowerBound bound(simulator);
    for (uint64_t plan = 0; plan < 6; ++plan) {
      const Timeline timeline = simulator.trace(randomPlan(simulator, random, 2 * plan));
      ASSERT_EQ(bound.base().size(), timeline.peak_at.size());
      for (size_t i = 0; i < timeline.peak_at.size(); ++i) {
        ASSERT_LE(bound.base()[i], timeline.peak_at[i])
            << "seed " << seed << ", plan " << plan << ", instant " << i;
      }
    }
  }
}

TEST(LowerBound, NoPlanBeatsIt) {
  for (uint64_t seed = 1; seed <= kSteps; ++seed) {
    std::mt19937_64 random(seed);
    Simulator simulator = randomStep(random, 8 + static_cast<int>(seed % 40));
    LowerBound bound(simulator);
    for (uint64_t plan = 0; plan < 12; ++plan) {
      const Evaluation found = simulator.evaluate(randomPlan(simulator, random, plan % 11));
      ASSERT_LE(bound.peak(), found.peak) << "seed " << seed << ", plan " << plan;
      // Told of a plan that takes twice as long, for it stops at what is known.
      const double seconds = bound.seconds(found.peak, 2 * found.recompute_seconds + 1e-6, kRounds);
      ASSERT_LE(seconds, found.recompute_seconds + 1e-9) << "seed " << seed << ", plan " << plan;
    }
  }
}

/// Whoever unpacks has the bytes, kept or recomputed: a layer's input, beside two gradients and the
/// step's output.
TEST(LowerBound, WhatABackwardComputesWithIsThere) {
  constexpr int64_t kBytes = 1 << 20;
  const PlanningInput input = testing::uniformChain(6, kBytes, 0.004);
  Simulator simulator(input);
  EXPECT_EQ(LowerBound(simulator).peak(), 4 * kBytes);
}

/// In a chain each layer given up spares its bytes for its time, and parts of one likewise.
TEST(LowerBound, IsProportionalOnAChain) {
  constexpr int64_t kBytes = 1 << 20;
  constexpr double kSeconds = 0.004;
  const PlanningInput input = testing::uniformChain(12, kBytes, kSeconds);
  Simulator simulator(input);
  const int64_t peak = simulator.evaluate(simulator.keepAll()).peak;
  LowerBound bound(simulator);
  for (const double layers : {0.0, 0.5, 1.0, 2.0, 4.0}) {
    const auto budget = peak - static_cast<int64_t>(layers * kBytes);
    EXPECT_NEAR(bound.seconds(budget, 12 * kSeconds, 3000), layers * kSeconds, kSeconds / 100);
  }
}

}  // namespace
}  // namespace remat
