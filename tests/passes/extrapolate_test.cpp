#include "passes/extrapolate.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "passes/remat.h"

namespace remat {
namespace {

/// One node that makes a storage of 100 bytes and 8 for each sample, in 1 s and 2 for each.
ir::Profile profileAt(int64_t batch) {
  const auto samples = static_cast<double>(batch);
  ir::Profile profile;
  profile.graph_hash = "a";
  profile.storages = {{100 + 8 * batch, ir::StorageRole::kValue}};
  ir::NodeProfile node;
  node.seconds = 1 + 2 * samples;
  node.outputs = {0};
  node.events = {{ir::EventKind::kAlloc, 0}};
  profile.nodes = {node};
  profile.values = {{"y", "float", true, 0, 0, {0}}};
  profile.slots = {{0, 0, 0}};
  profile.backward = {{0, 3 * samples, {{ir::EventKind::kFree, 0}}}};
  profile.peak_bytes = 10 * batch;
  profile.baseline_peak_bytes = 7 + 9 * batch;
  profile.step_seconds = 4 * samples;
  return profile;
}

TEST(ExtrapolateTest, BytesAndTimesAreOnALine) {
  const ir::Profile at16 = extrapolate({2, profileAt(2)}, {5, profileAt(5)}, 16);
  EXPECT_EQ(at16.storages[0].bytes, 228);
  EXPECT_DOUBLE_EQ(at16.nodes[0].seconds, 33);
  EXPECT_DOUBLE_EQ(at16.backward[0].seconds, 48);
  EXPECT_EQ(at16.peak_bytes, 160);
  EXPECT_EQ(at16.baseline_peak_bytes, 151);
  EXPECT_DOUBLE_EQ(at16.step_seconds, 64);
  EXPECT_EQ(at16.extrapolated_from, (std::vector<int64_t>{2, 5}));
}

TEST(ExtrapolateTest, TimesOfNoiseDoNotTurnNegative) {
  ir::Profile slow = profileAt(2);
  slow.nodes[0].seconds = 100;
  EXPECT_EQ(extrapolate({2, slow}, {5, profileAt(5)}, 16).nodes[0].seconds, 0);
}

TEST(ExtrapolateTest, StepsThatDifferAreRefused) {
  const auto refused = [](const ir::Profile& other) {
    EXPECT_THROW(extrapolate({2, profileAt(2)}, {5, other}, 16), RematError);
  };
  ir::Profile other = profileAt(5);
  other.nodes[0].events.push_back({ir::EventKind::kFree, 0});
  refused(other);
  other = profileAt(5);
  other.backward[0].events.clear();
  refused(other);
  other = profileAt(5);
  other.slots.push_back({0, -1, -1});
  refused(other);
  other = profileAt(5);
  other.graph_hash = "b";
  refused(other);
  EXPECT_THROW(extrapolate({2, profileAt(2)}, {2, profileAt(2)}, 16), RematError);
}

TEST(ExtrapolateTest, InputsOfABatchAreCutAndOthersStay) {
  const std::vector<c10::IValue> inputs{at::rand({8, 3}).requires_grad_(true), at::rand({3, 8}), 5};
  EXPECT_EQ(batchSize(inputs, 0), 8);
  EXPECT_EQ(batchSize(inputs, 1), 3);
  EXPECT_THROW(batchSize(inputs, 2), RematError);
  const std::vector<c10::IValue> cut = firstOfBatch(inputs, 0, 8, 2);
  EXPECT_EQ(cut[0].toTensor().sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(cut[0].toTensor().requires_grad());
  EXPECT_TRUE(cut[0].toTensor().is_leaf());
  EXPECT_EQ(cut[1].toTensor().sizes(), (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(cut[2].toInt(), 5);
}

}  // namespace
}  // namespace remat
