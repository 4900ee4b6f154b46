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

TEST(ExtrapolateTest, NoiseGivesNoTimeThatNoStepHas) {
  ir::Profile noisy = profileAt(2);
  noisy.nodes[0].seconds = 100;
  EXPECT_DOUBLE_EQ(extrapolate({2, noisy}, {5, profileAt(5)}, 16).nodes[0].seconds, 55.5);
  EXPECT_DOUBLE_EQ(extrapolate({5, profileAt(5)}, {2, noisy}, 16).nodes[0].seconds, 55.5);
  noisy.nodes[0].seconds = 1;
  EXPECT_DOUBLE_EQ(extrapolate({2, noisy}, {5, profileAt(5)}, 16).nodes[0].seconds, 35.2);
  EXPECT_DOUBLE_EQ(extrapolate({5, profileAt(5)}, {2, noisy}, 1).nodes[0].seconds, 2.2);
}

/// The peak of small batches can be where nothing grows.
TEST(ExtrapolateTest, AnotherInstantCanBeThePeak) {
  const auto with_gradients = [](int64_t batch) {
    ir::Profile profile = profileAt(batch);
    profile.backward[0].events = {{ir::EventKind::kUnpack, 0},
                                  {ir::EventKind::kApplyEnd, -1},
                                  {ir::EventKind::kRelease, 0},
                                  {ir::EventKind::kFree, 0}};
    profile.storages.push_back({1000, ir::StorageRole::kOther});
    profile.backward.push_back({-1, 0, {{ir::EventKind::kAlloc, 1}, {ir::EventKind::kFree, 1}}});
    profile.peak_bytes = std::max<int64_t>(1000, 100 + 8 * batch);
    profile.baseline_peak_bytes = profile.peak_bytes + batch;
    return profile;
  };
  const ir::Profile at200 = extrapolate({2, with_gradients(2)}, {5, with_gradients(5)}, 200);
  EXPECT_EQ(at200.peak_bytes, 1700);
  EXPECT_EQ(at200.baseline_peak_bytes, 1900);
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
