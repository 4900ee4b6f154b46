#include "passes/planner.h"

#include <gtest/gtest.h>
#include <llvm/ADT/STLExtras.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "passes/simulator.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

/// For each budget the least recompute time of any plan; infinite where no plan meets it.
std::vector<double> exhaustive(const PlanningInput& input, const std::vector<int64_t>& budgets) {
  Simulator simulator(input);
  const std::vector<int32_t> candidates = simulator.candidates();
  std::vector<char> keep = simulator.keepAll();
  std::vector<double> best(budgets.size(), std::numeric_limits<double>::infinity());
  for (uint32_t plan = 0; plan < (1u << candidates.size()); ++plan) {
    for (size_t i = 0; i < candidates.size(); ++i) keep[candidates[i]] = (plan >> i) & 1;
    const Evaluation evaluation = simulator.evaluate(keep);
    for (size_t i = 0; i < budgets.size(); ++i) {
      if (evaluation.peak <= budgets[i]) {
        best[i] = std::min(best[i], evaluation.recompute_seconds);
      }
    }
  }
  return best;
}

int64_t lowestPeak(const PlanningInput& input) {
  Simulator simulator(input);
  const std::vector<int32_t> candidates = simulator.candidates();
  std::vector<char> keep = simulator.keepAll();
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (uint32_t plan = 0; plan < (1u << candidates.size()); ++plan) {
    for (size_t i = 0; i < candidates.size(); ++i) keep[candidates[i]] = (plan >> i) & 1;
    lowest = std::min(lowest, simulator.evaluate(keep).peak);
  }
  return lowest;
}

void expectHonest(const PlanningInput& input, const ir::Plan& plan) {
  const Evaluation evaluation = Simulator(input).evaluate(plan.keep);
  EXPECT_EQ(evaluation.peak, plan.predicted_peak);
  EXPECT_DOUBLE_EQ(evaluation.recompute_seconds, plan.recompute_seconds);
}

TEST(PlannerTest, EqualsTheExhaustiveOptimumOnSmallGraphs) {
  std::mt19937_64 random(11);
  PlannerOptions options;
  options.exhaustive_decisions = 0;
  options.second_recomputation = false;
  int compared = 0;
  int equal = 0;
  double gaps = 0;
  while (compared < 4000) {
    const PlanningInput input = testing::randomProfile(random, 6 + static_cast<int>(random() % 12));
    const size_t decisions = Simulator(input).candidates().size();
    if (decisions < 4 || decisions > 12) continue;
    const int64_t top = input.profile.peak_bytes;
    const int64_t low = lowestPeak(input);
    if (low >= top) continue;
    const std::vector<int64_t> budgets{low, low + (top - low) / 4, low + (top - low) / 2,
                                       low + 3 * (top - low) / 4};
    const std::vector<double> optimum = exhaustive(input, budgets);
    for (size_t i = 0; i < budgets.size(); ++i) {
      const ir::Plan found = plan(input, budgets[i], options);
      ASSERT_LE(found.predicted_peak, budgets[i]);
      ASSERT_GE(found.recompute_seconds, optimum[i] - 1e-9);
      expectHonest(input, found);
      EXPECT_LE(found.lower_bound_seconds, optimum[i] + 1e-9);
      EXPECT_LE(found.peak_bound, low);
      ++compared;
      equal += found.recompute_seconds <= optimum[i] + 1e-9;
      gaps += found.recompute_seconds / std::max(optimum[i], 1e-9) - 1;
    }
  }
  RecordProperty("equal", equal);
  EXPECT_GE(equal, compared * 97 / 100);
  EXPECT_LE(gaps / compared, 0.003);
}

TEST(PlannerTest, SmallStepsAreSearchedCompletely) {
  std::mt19937_64 random(29);
  for (int trial = 0; trial < 100; ++trial) {
    const PlanningInput input = testing::randomProfile(random, 12);
    if (Simulator(input).candidates().size() > 12) continue;
    const int64_t low = lowestPeak(input);
    const ir::Plan found = plan(input, low);
    EXPECT_EQ(found.predicted_peak, low);
    EXPECT_NEAR(found.recompute_seconds, exhaustive(input, {low})[0], 1e-9);
  }
}

/// All plans that recompute once are known there; budgets below them are reached by nesting.
TEST(PlannerTest, SmallStepsNestToo) {
  PlannerOptions once;
  once.second_recomputation = false;
  const PlanningInput input = testing::uniformChain(12, 1000, 1);
  ASSERT_LE(static_cast<int32_t>(Simulator(input).candidates().size()), once.exhaustive_decisions);
  const int64_t lowest = Planner(input, once).minimum().predicted_peak;
  const ir::Plan nested = Planner(input).minimum();
  EXPECT_LT(nested.predicted_peak, lowest);
  EXPECT_EQ(nested.predicted_peak, nested.peak_bound);
  EXPECT_LE(plan(input, lowest - 1).predicted_peak, lowest - 1);
  // Asked for again, it is not only known but searched for the least time.
  Planner planner(input);
  EXPECT_EQ(planner.minimum().predicted_peak, nested.predicted_peak);
  EXPECT_LE(planner.plan(nested.predicted_peak).recompute_seconds, nested.recompute_seconds);
}

TEST(PlannerTest, AnUnreachableBudgetGetsTheLowestPeak) {
  std::mt19937_64 random(5);
  PlannerOptions options;
  options.exhaustive_decisions = 0;
  options.second_recomputation = false;
  for (int trial = 0; trial < 10; ++trial) {
    const PlanningInput input = testing::randomProfile(random, 10);
    if (Simulator(input).candidates().size() > 12) continue;
    const ir::Plan found = plan(input, 1, options);
    EXPECT_EQ(found.budget, 1);
    EXPECT_EQ(found.predicted_peak, lowestPeak(input));
    EXPECT_EQ(Planner(input, options).minimum().predicted_peak, found.predicted_peak);
  }
}

TEST(PlannerTest, ASweepIsMonotone) {
  for (const PlanningInput& input :
       {testing::bottleneckNet({2, 2, 2, 2}), testing::transformer(3, 256)}) {
    PlannerOptions options;
    options.work = 2000000;
    std::vector<int64_t> budgets;
    for (int64_t percent = 20; percent <= 100; percent += 5) {
      budgets.push_back(input.profile.peak_bytes * percent / 100);
    }
    const std::vector<ir::Plan> plans = sweep(input, budgets, options);
    ASSERT_EQ(plans.size(), budgets.size());
    for (size_t i = 0; i < plans.size(); ++i) {
      expectHonest(input, plans[i]);
      EXPECT_EQ(plans[i].budget, budgets[i]);
      if (i == 0) continue;
      EXPECT_GE(plans[i].predicted_peak, plans[i - 1].predicted_peak);
      EXPECT_LE(plans[i].recompute_seconds, plans[i - 1].recompute_seconds);
    }
    EXPECT_EQ(plans.back().recompute_seconds, 0);
    EXPECT_EQ(plans.back().recomputed, 0);
  }
}

TEST(PlannerTest, AChainsLowestPeakGrowsLessThanItsSquareRoot) {
  for (const int layers : {25, 100}) {
    PlannerOptions once;
    once.second_recomputation = false;
    const PlanningInput input = testing::uniformChain(layers, 1000, 1);
    const ir::Plan single = Planner(input, once).minimum();
    const ir::Plan nested = Planner(input).minimum();
    // Segments and what is left of one, both of about the square root.
    EXPECT_LE(single.predicted_peak, 2.2 * std::sqrt(layers) * 1000);
    EXPECT_LE(nested.predicted_peak, 1.3 * std::sqrt(layers) * 1000);
    expectHonest(input, nested);
  }
}

TEST(PlannerTest, PlansAreDeterministic) {
  const PlanningInput input = testing::bottleneckNet({1, 2, 2, 1});
  PlannerOptions options;
  options.work = 2000000;
  const int64_t budget = input.profile.peak_bytes / 2;
  EXPECT_EQ(plan(input, budget, options).keep, plan(input, budget, options).keep);
}

/// Also where only storages that are recomputed for every use lead into the budget.
TEST(PlannerTest, NoSingleChangeIsFaster) {
  std::mt19937_64 random(5);
  int nested = 0;
  for (int trial = 0; trial < 16; ++trial) {
    const PlanningInput input = testing::randomProfile(random, 60);
    const int64_t budget = input.profile.peak_bytes * 60 / 100;
    const ir::Plan found = plan(input, budget);
    if (found.predicted_peak > budget) continue;
    Simulator simulator(input);
    std::vector<char> keep = found.keep;
    const bool nests = llvm::is_contained(keep, ir::kRecomputeEachTime);
    nested += nests;
    for (const int32_t storage : simulator.candidates()) {
      for (const ir::Decision decision : {ir::kRecompute, ir::kKeep, ir::kRecomputeEachTime}) {
        if (decision == ir::kRecomputeEachTime && !nests) continue;
        const char before = std::exchange(keep[storage], decision);
        const Evaluation evaluation = simulator.evaluate(keep);
        keep[storage] = before;
        if (evaluation.peak > budget) continue;
        EXPECT_GE(evaluation.recompute_seconds, found.recompute_seconds * (1 - 1e-9))
            << "trial " << trial << ", storage " << storage << " from " << int{before} << " to "
            << int{decision};
      }
    }
  }
  EXPECT_GE(nested, 3);
}

TEST(PlannerTest, NothingToDecideIsNoError) {
  const PlanningInput input = testing::uniformChain(1, 100, 1);
  const ir::Plan found = plan(input, 1);
  EXPECT_EQ(found.predicted_peak, input.profile.peak_bytes);
  EXPECT_EQ(found.recomputed, 0);
}

}  // namespace
}  // namespace remat
