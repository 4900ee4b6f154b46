#include "passes/step_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "ir/plan.h"
#include "passes/simulator.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

int64_t bytesOf(const StepMemory& memory, const std::string& part) {
  int64_t sum = 0;
  for (const StepMemory::Part& each : memory.parts) {
    if (part.empty() || each.name == part) sum += each.bytes;
  }
  return sum;
}

TEST(StepReportTest, PointsAndPartsFitThePeakOfRandomPlans) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const PlanningInput input =
        testing::randomProfile(random, 4 + static_cast<int>(random() % 20), trial % 2 == 0);
    Simulator simulator(input);
    std::vector<char> keep = simulator.keepAll();
    for (char& decision : keep) decision = static_cast<char>(random() % 3);
    const Evaluation expected = simulator.evaluate(keep);
    const StepMemory memory = stepMemory(input, keep);
    EXPECT_EQ(memory.peak.bytes, expected.peak);
    EXPECT_EQ(bytesOf(memory, ""), expected.peak) << "trial " << trial;
    for (const StepMemory::Part& part : memory.parts) EXPECT_GE(part.bytes, 0) << part.name;
    int64_t highest = 0;
    for (const StepMemory::Point& point : memory.points) highest = std::max(highest, point.bytes);
    EXPECT_EQ(highest, expected.peak);
  }
}

TEST(StepReportTest, AChainsPeakIsMadeOfWhatItSaved) {
  constexpr int64_t kBytes = 1 << 20;
  PlanningInput input = testing::uniformChain(6, kBytes, 0.01);
  for (size_t node = 0; node < input.profile.nodes.size(); ++node) {
    input.profile.nodes[node].module_path = "layers." + std::to_string(node / 3) + ".act";
  }
  Simulator simulator(input);
  const StepMemory memory = stepMemory(input, simulator.keepAll());
  EXPECT_TRUE(memory.peaksInBackward());
  EXPECT_EQ(memory.module_path, "layers.1.act");
  // Five inputs of layers, one of them the step's argument; gradients of the last result and of its
  // input beside the output.
  EXPECT_EQ(bytesOf(memory, "values of layers.0.act"), 3 * kBytes);
  EXPECT_EQ(bytesOf(memory, "values of layers.1.act"), 2 * kBytes);
  EXPECT_EQ(bytesOf(memory, "the model's output"), kBytes);
  EXPECT_EQ(bytesOf(memory, ""), input.profile.peak_bytes);
}

TEST(StepReportTest, ManyInstantsAreThinnedToTheirPeaks) {
  const PlanningInput input = testing::uniformChain(2000, 1 << 16, 0.01);
  Simulator simulator(input);
  const StepMemory memory = stepMemory(input, simulator.keepAll());
  EXPECT_GT(memory.instants, 4000);
  EXPECT_LE(memory.points.size(), 1500U);
  EXPECT_TRUE(std::is_sorted(memory.points.begin(), memory.points.end(),
                             [](const auto& a, const auto& b) { return a.instant < b.instant; }));
}

TEST(StepReportTest, DecidedValuesAreWhatAPlanKeepsAndRecomputes) {
  const PlanningInput input = testing::uniformChain(6, 1 << 20, 0.25);
  Simulator simulator(input);
  const std::vector<int32_t> candidates = simulator.candidates();
  ir::Plan plan;
  plan.keep = simulator.keepAll();
  plan.keep[candidates[1]] = ir::kRecompute;
  const std::vector<DecidedValue> values = decidedValues(input, plan);
  // Of six results the last is the output, which nobody saved.
  ASSERT_EQ(values.size(), candidates.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i].recomputed, i == 1);
    EXPECT_EQ(values[i].op, "aten::gelu");
    EXPECT_EQ(values[i].bytes, 1 << 20);
    EXPECT_EQ(values[i].seconds, 0.25);
  }
}

}  // namespace
}  // namespace remat
