#include "passes/segment_seeds.h"

#include <gtest/gtest.h>

#include "tests/passes/synthetic.h"

namespace remat {
namespace {

TEST(SegmentSeedsTest, AUniformChainNeedsTheSquareRootOfItsDepth) {
  const int layers = 400;
  const PlanningInput input = testing::uniformChain(layers, 1000, 1);
  Simulator simulator(input);
  const SegmentSeeds segments(simulator, {});
  const std::vector<char> keep = segments.solve(int64_t{50} * 1000);
  ASSERT_FALSE(keep.empty());
  EXPECT_LE(simulator.evaluate(keep).peak, int64_t{60} * 1000);
  EXPECT_TRUE(segments.solve(5000).empty());
}

TEST(SegmentSeedsTest, WithRoomForEverythingNothingIsRecomputed) {
  const PlanningInput input = testing::bottleneckNet({2, 2, 2, 2});
  Simulator simulator(input);
  const SegmentSeeds segments(simulator, {});
  const std::vector<char> keep = segments.solve(2 * input.profile.peak_bytes);
  EXPECT_EQ(simulator.evaluate(keep).recompute_seconds, 0);
}

TEST(SegmentSeedsTest, SegmentsFollowTheirGuides) {
  // Recomputing batch_norm and relu is cheap, convolutions are dear: the guide knows, the two
  // extremes don't.
  const PlanningInput input = testing::convChain(400, 1 << 20);
  Simulator simulator(input);
  std::vector<char> guide = simulator.keepAll();
  for (size_t storage = 0; storage < guide.size(); ++storage) {
    for (const ir::ValueProfile& value : input.profile.values) {
      const bool holds = !value.storages.empty() && value.storages.front() == int32_t(storage);
      if (holds && value.producer >= 0 &&
          input.profile.nodes[value.producer].op != "aten::conv2d") {
        guide[storage] = 0;
      }
    }
  }
  const int64_t budget = input.profile.peak_bytes * 7 / 10;
  const std::vector<char> with = SegmentSeeds(simulator, {guide}).solve(budget);
  const std::vector<char> without = SegmentSeeds(simulator, {}).solve(budget);
  ASSERT_FALSE(with.empty());
  ASSERT_FALSE(without.empty());
  EXPECT_LT(simulator.evaluate(with).recompute_seconds,
            simulator.evaluate(without).recompute_seconds);
}

}  // namespace
}  // namespace remat
