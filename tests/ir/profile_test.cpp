#include "ir/profile.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

namespace remat::ir {
namespace {

Profile sample() {
  Profile profile;
  profile.graph_hash = "0123abcd";
  profile.device = "cpu";
  profile.inputs = "16x3x224x224";
  profile.loss = "cross_entropy";
  profile.peak_bytes = int64_t{5} << 40;
  profile.baseline_peak_bytes = 17;
  profile.step_seconds = 0.1;
  profile.storages = {{int64_t{3} << 40, StorageRole::kValue}, {8, StorageRole::kInternal}};
  NodeProfile node;
  node.program_index = 3;
  node.op = "aten::relu";
  node.module_path = "layer2.0.relu";
  node.source = "model \"x\".py:41";
  node.seconds = 1.0 / 3.0;
  node.inputs = {0};
  node.outputs = {1};
  node.events = {{EventKind::kAlloc, 0}, {EventKind::kFree, 1}};
  profile.nodes = {node};
  profile.values = {{"x", "float[2]", true, -1, 0, {}}, {"y", "float[2]", true, 0, 1, {0}}};
  profile.slots = {{0, 1, 0}, {0, -1, -1}, {0, -1, 1, 1}};
  BackwardStep step;
  step.node = 0;
  step.seconds = 1e-7;
  step.events = {{EventKind::kUnpack, 1}, {EventKind::kApplyEnd, -1}, {EventKind::kRelease, 0}};
  profile.backward = {step, {}};
  return profile;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.substr(0, at) + to + text.substr(at + from.size());
}

std::string errorOf(const std::string& text) {
  try {
    profileFromJson(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ProfileTest, SaysWhatItsBytesAndTimesAreFor) {
  Profile profile = sample();
  Profile read = profileFromJson(toJson(profile));
  EXPECT_EQ(read.rounding, 1);
  EXPECT_FALSE(read.roofline.known() || read.derived());
  profile.rounding = 512;
  profile.recorded_on = "cpu";
  profile.roofline = {6.7e13, 4.8e12};
  const std::string text = toJson(profile);
  read = profileFromJson(text);
  EXPECT_EQ(read.rounding, 512);
  EXPECT_EQ(read.recorded_on, "cpu");
  EXPECT_EQ(read.roofline.flops, 6.7e13);
  EXPECT_EQ(read.roofline.bytes, 4.8e12);
  EXPECT_TRUE(read.derived());
  EXPECT_NE(errorOf(replaced(text, R"("rounding":512)", R"("rounding":0)")).find("'rounding'"),
            std::string::npos);
  EXPECT_NE(
      errorOf(replaced(text, R"("recorded_on":"cpu")", R"("recorded_on":1)")).find("'recorded_on'"),
      std::string::npos);
  EXPECT_NE(errorOf(replaced(text, R"("roofline":[)", R"("roofline":[0,)")).find("'roofline'"),
            std::string::npos);
  EXPECT_NE(errorOf(replaced(text, R"("roofline":[67000000000000)", R"("roofline":[-1)"))
                .find("'roofline'"),
            std::string::npos);
}

TEST(ProfileTest, RoundsUp) {
  EXPECT_EQ(roundedUp(0, 512), 0);
  EXPECT_EQ(roundedUp(1, 512), 512);
  EXPECT_EQ(roundedUp(1024, 512), 1024);
  EXPECT_EQ(roundedUp(1025, 1), 1025);
}

TEST(ProfileTest, SaysWhatItWasExtrapolatedFrom) {
  Profile profile = sample();
  EXPECT_TRUE(profileFromJson(toJson(profile)).extrapolated_from.empty());
  profile.extrapolated_from = {2, 4};
  const std::string text = toJson(profile);
  EXPECT_EQ(profileFromJson(text).extrapolated_from, profile.extrapolated_from);
  EXPECT_NE(errorOf(replaced(text, "[2,4]", "[2]")).find("extrapolated_from"), std::string::npos);
  EXPECT_NE(errorOf(replaced(text, "[2,4]", "[2,0]")).find("extrapolated_from"), std::string::npos);
}

TEST(ProfileTest, SurvivesJson) {
  const Profile before = sample();
  const Profile after = profileFromJson(toJson(before));
  EXPECT_EQ(toJson(after), toJson(before));
  EXPECT_EQ(after.loss, before.loss);
  EXPECT_EQ(after.peak_bytes, before.peak_bytes);
  EXPECT_EQ(after.nodes[0].seconds, before.nodes[0].seconds);
  EXPECT_EQ(after.nodes[0].source, before.nodes[0].source);
  EXPECT_EQ(after.nodes[0].events[1].kind, EventKind::kFree);
  EXPECT_EQ(after.values[1].storages, before.values[1].storages);
  EXPECT_EQ(after.values[0].producer, -1);
  EXPECT_EQ(after.storages[0].bytes, before.storages[0].bytes);
  EXPECT_EQ(after.storages[1].role, StorageRole::kInternal);
  EXPECT_EQ(after.slots[0].cast_of, -1);
  EXPECT_EQ(after.slots[1].storage, -1);
  EXPECT_EQ(after.slots[2].cast_of, 1);
  EXPECT_EQ(after.backward[0].events[1].kind, EventKind::kApplyEnd);
  EXPECT_EQ(after.backward[1].node, -1);
}

TEST(ProfileTest, AnOldFileDoesNotSayTheLoss) {
  const std::string old = replaced(toJson(sample()), R"("loss":"cross_entropy",)", "");
  EXPECT_EQ(profileFromJson(old).loss, "");
}

TEST(ProfileTest, SumsForwardSeconds) {
  Profile profile = sample();
  profile.nodes.push_back(profile.nodes[0]);
  EXPECT_DOUBLE_EQ(profile.forwardSeconds(), 2.0 / 3.0);
}

TEST(ProfileTest, ABrokenNameDoesNotBreakTheFile) {
  Profile profile = sample();
  profile.nodes[0].source = "\xff\xfe.py";
  EXPECT_NO_THROW(profileFromJson(toJson(profile)));
}

TEST(ProfileTest, SaysWhatIsWrongWithAFile) {
  const std::string good = toJson(sample());
  const struct {
    const char* from;
    const char* to;
    const char* error;
  } cases[] = {
      {"\"remat_profile\":1", "\"remat_profile\":2", "format version 2"},
      {"\"remat_profile\":1", "\"other\":1", "'remat_profile' is missing"},
      {"\"inputs\":[0]", "\"inputs\":[2]", "node 0: 'inputs' holds 2, which is not in [0, 1]"},
      {"\"outputs\":[1]", "\"outputs\":[-1]", "node 0: 'outputs' holds -1"},
      {"\"events\":[0,0,1,1]", "\"events\":[0,0,1,2]", "node 0: 'events' holds 2"},
      {"\"events\":[0,0,1,1]", "\"events\":[0,0,1]", "(kind, id) pairs"},
      {"\"events\":[0,0,1,1]", "\"events\":[0,0,4,1]", "'events' holds 4"},
      {"\"events\":[2,1,3,-1,4,0]", "\"events\":[2,1,3,0,4,0]",
       "backward step 0: 'events' holds 0"},
      {"\"events\":[2,1,3,-1,4,0]", "\"events\":[9,1]", "'events' holds 9"},
      {"\"slots\":[[0,1,0]", "\"slots\":[[0,1,7]", "slot 0"},
      {"\"slots\":[[0,1,0]", "\"slots\":[[0,1]", "slot 0: expected"},
      {"[0,-1,1,1]", "[0,-1,1,2]", "slot 2: index 3"},
      {"[0,-1,1,1]", "[0,0,1,1]", "slot 2: it holds a value and is a cast of one"},
      {",1],[8,3]]", ",1],[8,9]]", "storage 1: unknown role"},
      {",1],[8,3]]", ",1],[-8,3]]", "storage 1: bad number of bytes"},
      {"\"producer\":0", "\"producer\":1", "value 1: 'producer' holds 1"},
      {"\"last_use\":1", "\"last_use\":2", "value 1: 'last_use' holds 2"},
      {"\"tensor\":true", "\"tensor\":1", "'tensor' is not a boolean"},
      {"\"step_seconds\":0.1", "\"step_seconds\":-1", "'step_seconds'"},
      {"\"step_seconds\":0.1", "\"step_seconds\":1e18", "'step_seconds' is not a time"},
      {R"("device":"cpu")", R"("device":7)", "'device' is not a string"},
  };
  for (const auto& c : cases) {
    EXPECT_NE(errorOf(replaced(good, c.from, c.to)).find(c.error), std::string::npos)
        << c.to << ": " << errorOf(replaced(good, c.from, c.to));
  }
  Profile long_run = sample();
  long_run.nodes.resize(3, long_run.nodes[0]);
  for (NodeProfile& node : long_run.nodes) node.seconds = 5e4;
  EXPECT_NE(errorOf(toJson(long_run)).find("no times"), std::string::npos);
  EXPECT_NE(errorOf("").find("not JSON"), std::string::npos);
  EXPECT_NE(errorOf("[]").find("expected an object"), std::string::npos);
  EXPECT_NE(errorOf(std::string(1000000, '[')).find("nested too deep"), std::string::npos);
}

TEST(ProfileTest, NeverCrashesOnDamage) {
  const std::string good = toJson(sample());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(profileFromJson(good.substr(0, length)), std::runtime_error);
  }
  std::mt19937 random(1);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string damaged = good;
    for (int change = 0; change < 1 + trial % 3; ++change) {
      damaged[random() % damaged.size()] = static_cast<char>(random() % 128);
    }
    try {
      profileFromJson(damaged);
    } catch (const std::runtime_error&) {
    }
  }
}

}  // namespace
}  // namespace remat::ir
