#include "passes/plan_file.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "passes/internals.h"
#include "passes/marks.h"
#include "passes/planner.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

PlanningInput named(PlanningInput input) {
  for (size_t i = 0; i < input.profile.values.size(); ++i) {
    input.profile.values[i].name = "v" + std::to_string(i);
  }
  input.profile.graph_hash = "0123456789abcdef";
  return input;
}

std::string errorOf(const std::string& text) {
  try {
    savedPlanFromJson(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(PlanFile, GivesTheSameMarksWithOtherTimes) {
  std::mt19937_64 random(5);
  PlannerOptions options;
  options.work = 400000;
  for (int round = 0; round < 100; ++round) {
    const PlanningInput raw = named(testing::randomProfile(random, 14));
    PlanningInput input = raw;
    exposeInternals(input);
    ir::Plan plan = Planner(input, options).minimum();
    const std::string text = toJson(savedPlan(input, plan));
    PlanningInput there = raw;
    for (ir::NodeProfile& node : there.profile.nodes) node.seconds *= 2;
    there.minimum_bytes = 1;
    exposeInternals(there);
    const SavedPlan read = savedPlanFromJson(text);
    EXPECT_EQ(toJson(read), text);
    const ir::Plan again = planOf(read, there);
    EXPECT_EQ(marksOf(there, again), marksOf(input, plan));
    EXPECT_EQ(regeneratedValues(there, again), regeneratedValues(input, plan));
    EXPECT_EQ(planHash(savedPlan(there, again)), planHash(read));
  }
}

TEST(PlanFile, ErrorsNameWhatIsWrong) {
  const PlanningInput input = named(testing::uniformChain(6, 1'000'000, 1));
  const std::string text = toJson(savedPlan(input, Planner(input).minimum()));
  EXPECT_EQ(errorOf(text), "");
  EXPECT_NE(errorOf("{").find("no JSON"), std::string::npos);
  EXPECT_NE(errorOf("[]").find("not an object"), std::string::npos);
  EXPECT_NE(errorOf("{}").find("'remat_plan' is missing"), std::string::npos);
  EXPECT_NE(errorOf(std::string(100'000, '[')).find("nested too deep"), std::string::npos);
  std::string other = text;
  other.replace(other.find("\"keep\""), 6, "\"forget\"");
  EXPECT_NE(errorOf(other).find("is neither keep"), std::string::npos);
  SavedPlan elsewhere = savedPlanFromJson(text);
  elsewhere.values["nowhere"] = ir::kRecompute;
  EXPECT_THROW(planOf(elsewhere, input), std::runtime_error);
  elsewhere = savedPlanFromJson(text);
  elsewhere.regenerated = {"nowhere"};
  EXPECT_THROW(planOf(elsewhere, input), std::runtime_error);
  elsewhere.regenerated = {"nowhere", "nowhere"};
  EXPECT_NE(errorOf(toJson(elsewhere)).find("twice"), std::string::npos);
}

}  // namespace
}  // namespace remat
