#include "passes/plan_archive.h"

#include <gtest/gtest.h>

namespace remat {
namespace {

Evaluation made(int64_t peak, double seconds) {
  Evaluation evaluation;
  evaluation.peak = peak;
  evaluation.recompute_seconds = seconds;
  return evaluation;
}

TEST(PlanArchiveTest, HoldsWhatNothingElseBeats) {
  PlanArchive archive;
  EXPECT_EQ(archive.lowest(), nullptr);
  EXPECT_TRUE(archive.offer(made(100, 0), {1}));
  EXPECT_TRUE(archive.offer(made(50, 4), {2}));
  EXPECT_TRUE(archive.offer(made(70, 3), {3}));
  EXPECT_FALSE(archive.offer(made(70, 3), {4}));
  EXPECT_FALSE(archive.offer(made(80, 3.5), {4}));
  EXPECT_TRUE(archive.offer(made(60, 2), {5}));
  EXPECT_EQ(archive.entries().size(), 3u);
  EXPECT_EQ(archive.best(49), nullptr);
  EXPECT_EQ(archive.best(59)->keep, std::vector<char>{2});
  EXPECT_EQ(archive.best(99)->keep, std::vector<char>{5});
  EXPECT_EQ(archive.best(1000)->evaluation.peak, 100);
  EXPECT_EQ(archive.lowest()->evaluation.peak, 50);
}

TEST(PlanArchiveTest, AnAbortedWalkProvesNothing) {
  PlanArchive archive;
  Evaluation evaluation = made(1, 0);
  evaluation.aborted = true;
  EXPECT_FALSE(archive.offer(evaluation, {1}));
}

}  // namespace
}  // namespace remat
