#include "passes/choices.h"

#include <gtest/gtest.h>

#include "passes/planner.h"
#include "passes/simulator.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

constexpr int64_t kBytes = 1'000'000;

/// Node i is of module `layers.<i / 4>.<i % 4>`.
PlanningInput chain(const OptimizeOptions& options) {
  PlanningInput input = testing::uniformChain(16, kBytes, 1);
  for (size_t i = 0; i < input.profile.nodes.size(); ++i) {
    input.profile.nodes[i].module_path =
        "layers." + std::to_string(i / 4) + "." + std::to_string(i % 4);
  }
  applyChoices(options, input);
  return input;
}

TEST(Choices, GlobsMatchModulesAndWhatIsInThem) {
  EXPECT_TRUE(matchesModule("layer1.*", "layer1.0.conv1"));
  EXPECT_TRUE(matchesModule("layer1", "layer1.0.conv1"));
  EXPECT_TRUE(matchesModule("*.attn", "blocks.3.attn.proj"));
  EXPECT_TRUE(matchesModule("*", ""));
  EXPECT_FALSE(matchesModule("layer1", "layer10.conv1"));
  EXPECT_FALSE(matchesModule("*.attn", "blocks.3.attention"));
  EXPECT_FALSE(matchesModule("layer1.*", ""));
}

TEST(Choices, WrongOnesAreNamed) {
  OptimizeOptions options;
  options.keep_modules = {"a.*"};
  EXPECT_EQ(wrongChoice({"a.0", "a.1", "b"}, options), "");
  options.recompute_modules = {"c*"};
  EXPECT_EQ(wrongChoice({"", "a.0", "a.1", "b"}, options),
            "recompute 'c*' matches no module of forward; its modules are a.0, a.1, b");
  options.recompute_modules = {"*.1"};
  EXPECT_NE(wrongChoice({"a.0", "a.1", "b"}, options).find("both match module a.1"),
            std::string::npos);
}

TEST(Choices, KeptModulesAreNoDecisions) {
  OptimizeOptions options;
  options.keep_modules = {"layers.1"};
  const PlanningInput input = chain(options);
  Simulator simulator(input);
  EXPECT_LT(simulator.candidates().size(), Simulator(chain({})).candidates().size());
  std::vector<char> dropped(input.profile.storages.size(), ir::kRecompute);
  const Timeline timeline = simulator.trace(dropped);
  int kept = 0;
  for (size_t storage = 0; storage < input.forced.size(); ++storage) {
    if (input.forced[storage] != ir::kKeep) continue;
    ++kept;
    EXPECT_LT(timeline.replay_first[storage], 0);
  }
  EXPECT_EQ(kept, 4);
}

TEST(Choices, ChosenModulesAreRecomputedInEveryPlan) {
  OptimizeOptions options;
  options.recompute_modules = {"layers.2.*"};
  const PlanningInput input = chain(options);
  Planner planner(input);
  for (const int64_t budget : {100 * kBytes, 12 * kBytes}) {
    ir::Plan plan = planner.plan(budget);
    settleChoices(input, plan);
    EXPECT_GT(plan.recompute_seconds, 0);
    const Evaluation evaluation = Simulator(input).evaluate(plan.keep);
    EXPECT_EQ(evaluation.peak, plan.predicted_peak);
    PlanningInput free = input;
    free.forced.clear();
    const Evaluation same = Simulator(free).evaluate(plan.keep);
    EXPECT_EQ(same.peak, plan.predicted_peak) << "the plan itself says what is recomputed";
    EXPECT_EQ(same.recompute_seconds, plan.recompute_seconds);
    for (size_t storage = 0; storage < input.forced.size(); ++storage) {
      if (input.forced[storage] == ir::kRecompute) {
        EXPECT_NE(plan.keep[storage], ir::kKeep);
      }
    }
    EXPECT_GE(plan.recomputed, 4);
  }
}

}  // namespace
}  // namespace remat
