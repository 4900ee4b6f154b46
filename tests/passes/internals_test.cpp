#include "passes/internals.h"

#include <gtest/gtest.h>

#include "passes/marks.h"
#include "passes/simulator.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

/// x → a → b → c; b's operator saves 300 bytes inside of itself, a's 20.
PlanningInput chain() {
  testing::ProfileBuilder builder;
  const int32_t x = builder.argument(100, false);
  const auto op = [&](const char* name, int32_t input, int64_t internal) {
    testing::ProfileBuilder::Op made;
    made.name = name;
    made.seconds = 1;
    made.inputs = {input};
    made.output_bytes = {100};
    made.saved = {input};
    made.internal_bytes = internal;
    return builder.add(made);
  };
  const int32_t a = op("a", x, 20);
  const int32_t b = op("b", a, 300);
  PlanningInput input = builder.finish({op("c", b, 0)});
  input.minimum_bytes = 50;
  return input;
}

TEST(InternalsTest, LargeOnesBecomeAValueOfTheirNode) {
  const PlanningInput before = chain();
  PlanningInput input = before;
  exposeInternals(input);
  ASSERT_EQ(input.profile.values.size(), before.profile.values.size() + 1);
  EXPECT_EQ(input.first_internal, static_cast<int32_t>(before.profile.values.size()));
  const ir::ValueProfile& internals = input.profile.values.back();
  EXPECT_EQ(input.profile.nodes[internals.producer].op, "aten::b");
  ASSERT_EQ(internals.storages.size(), 1u);
  EXPECT_EQ(input.profile.storages[internals.storages[0]].bytes, 300);
  // Nothing else about the step has changed.
  Simulator simulator(input);
  EXPECT_TRUE(simulator.consistent());
  EXPECT_EQ(simulator.candidates().size(), Simulator(before).candidates().size() + 1);
}

TEST(InternalsTest, MakingThemAgainRunsTheirNodeAndSparesTheirBytes) {
  PlanningInput input = chain();
  exposeInternals(input);
  Simulator simulator(input);
  const int32_t storage = input.profile.values.back().storages[0];
  ir::Plan plan;
  plan.keep = simulator.keepAll();
  const Evaluation kept = simulator.evaluate(plan.keep);
  plan.keep[storage] = ir::kRecompute;
  const Evaluation again = simulator.evaluate(plan.keep);
  EXPECT_EQ(again.recompute_seconds, 1);
  EXPECT_LE(again.peak, kept.peak);
  ASSERT_EQ(regeneratedValues(input, plan).size(), 1u);
  const int32_t marked = regeneratedValues(input, plan)[0];
  EXPECT_EQ(input.profile.nodes[input.profile.values[marked].producer].op, "aten::b");
  for (const int32_t value : marksOf(input, plan)) EXPECT_LT(value, input.first_internal);
}

TEST(InternalsTest, WhatMayNotRunAgainStaysAsItIs) {
  PlanningInput input = chain();
  input.replayable.assign(input.profile.nodes.size(), 0);
  const size_t values = input.profile.values.size();
  exposeInternals(input);
  EXPECT_EQ(input.profile.values.size(), values);
}

}  // namespace
}  // namespace remat
