#include "passes/roofline.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace remat {
namespace {

constexpr double kFloat = 4;

/// A step of one node `op` with tensors of these types, each with a storage of its own.
ir::Profile oneNode(const std::string& op, const std::vector<std::string>& inputs,
                    const std::string& output) {
  ir::Profile profile;
  profile.nodes.emplace_back();
  profile.nodes[0].op = op;
  const auto add = [&](const std::string& type, int32_t producer) {
    const auto id = static_cast<int32_t>(profile.values.size());
    profile.values.push_back({"v", type, true, producer, 0, {id}});
    profile.storages.push_back({1000, ir::StorageRole::kValue});
    return id;
  };
  for (const std::string& type : inputs) profile.nodes[0].inputs.push_back(add(type, -1));
  profile.nodes[0].outputs = {add(output, 0)};
  return profile;
}

double flopsOf(const std::string& op, const std::vector<std::string>& inputs,
               const std::string& output) {
  return forwardWork(oneNode(op, inputs, output), 0).flops;
}

TEST(RooflineTest, ReadsTypes) {
  const auto type = tensorType("BFloat16[16, 3, 224, 224]");
  ASSERT_TRUE(type);
  EXPECT_EQ(type->element_size, 2);
  EXPECT_EQ(type->sizes, (std::vector<int64_t>{16, 3, 224, 224}));
  EXPECT_EQ(type->bytes(), 2.0 * 16 * 3 * 224 * 224);
  EXPECT_EQ(tensorType("Long[]")->elements(), 1);
  for (const char* const none : {"TensorList", "Int", "", "Float[2", "Float[2, x]", "Float[-1]"}) {
    EXPECT_FALSE(tensorType(none)) << none;
  }
}

// What torch.utils.flop_counter gives for the same shapes.
TEST(RooflineTest, CountsConvolutions) {
  EXPECT_EQ(flopsOf("aten::conv2d", {"Float[8, 3, 32, 32]", "Float[16, 3, 3, 3]", "Float[16]"},
                    "Float[8, 16, 30, 30]"),
            2.0 * 8 * 16 * 30 * 30 * 3 * 3 * 3);
  // In groups.
  EXPECT_EQ(flopsOf("aten::conv2d", {"Float[8, 32, 32, 32]", "Float[32, 1, 3, 3]"},
                    "Float[8, 32, 32, 32]"),
            2.0 * 8 * 32 * 32 * 32 * 3 * 3);
  const double transposed = 2.0 * 8 * 3 * 32 * 32 * 16 * 3 * 3;
  EXPECT_EQ(flopsOf("aten::conv_transpose2d", {"Float[8, 3, 32, 32]", "Float[3, 16, 3, 3]"},
                    "Float[8, 16, 34, 34]"),
            transposed);
  EXPECT_EQ(flopsOf("aten::_convolution", {"Float[8, 3, 32, 32]", "Float[3, 16, 3, 3]"},
                    "Float[8, 16, 34, 34]"),
            transposed);
  EXPECT_EQ(flopsOf("aten::_convolution", {"Float[8, 3, 32, 32]", "Float[16, 3, 3, 3]"},
                    "Float[8, 16, 30, 30]"),
            2.0 * 8 * 16 * 30 * 30 * 3 * 3 * 3);
}

TEST(RooflineTest, CountsProducts) {
  EXPECT_EQ(flopsOf("aten::mm", {"Float[4, 5]", "Float[5, 6]"}, "Float[4, 6]"), 2.0 * 4 * 5 * 6);
  EXPECT_EQ(flopsOf("aten::bmm", {"Float[3, 4, 5]", "Float[3, 5, 6]"}, "Float[3, 4, 6]"),
            2.0 * 3 * 4 * 5 * 6);
  EXPECT_EQ(flopsOf("aten::matmul", {"Float[2, 3, 4, 5]", "Float[5]"}, "Float[2, 3, 4]"),
            2.0 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flopsOf("aten::linear", {"Half[7, 4, 5]", "Half[6, 5]", "Half[6]"}, "Half[7, 4, 6]"),
            2.0 * 7 * 4 * 5 * 6);
  EXPECT_EQ(flopsOf("aten::addmm", {"Float[6]", "Float[4, 5]", "Float[5, 6]"}, "Float[4, 6]"),
            2.0 * 4 * 5 * 6);
}

TEST(RooflineTest, CountsAttention) {
  EXPECT_EQ(flopsOf("aten::scaled_dot_product_attention",
                    {"Float[2, 3, 10, 8]", "Float[2, 3, 20, 8]", "Float[2, 3, 20, 4]"},
                    "Float[2, 3, 10, 4]"),
            2.0 * 2 * 3 * 10 * 20 * (8 + 4));
}

TEST(RooflineTest, CountsBytes) {
  const Work relu = forwardWork(oneNode("aten::relu", {"Float[100]"}, "Float[100]"), 0);
  EXPECT_EQ(relu.flops, 0);
  EXPECT_EQ(relu.bytes, 2 * 100 * kFloat);
  // A list doesn't say its shapes.
  EXPECT_EQ(forwardWork(oneNode("aten::cat", {"TensorList"}, "Float[250]"), 0).bytes, 1000 + 1000);
  EXPECT_EQ(forwardWork(oneNode("prim::ListConstruct", {"Float[9]"}, "TensorList"), 0).bytes, 0);
  ir::Profile view = oneNode("aten::view", {"Float[100]"}, "Float[10, 10]");
  view.values[1].storages = {0};
  EXPECT_EQ(forwardWork(view, 0).bytes, 0);
  view.nodes[0].op = "aten::relu_";
  EXPECT_EQ(forwardWork(view, 0).bytes, 2 * 100 * kFloat) << "it writes what it shares";
}

TEST(RooflineTest, TheSlowerOfTheTwoCounts) {
  const ir::Roofline roofline{100, 10};
  EXPECT_EQ(rooflineSeconds({1000, 10}, roofline), 10);
  EXPECT_EQ(rooflineSeconds({1000, 1000}, roofline), 100);
}

TEST(RooflineTest, ReplacesEveryTime) {
  ir::Profile profile = oneNode("aten::mm", {"Float[4, 5]", "Float[5, 6]"}, "Float[4, 6]");
  profile.nodes[0].seconds = 7;
  profile.step_seconds = 7;
  profile.backward = {{-1, 7, {}}, {0, 7, {}}, {0, 7, {}}};
  applyRoofline({1, 1e9}, profile);
  constexpr double kForward = 2 * 4 * 5 * 6;
  EXPECT_EQ(profile.nodes[0].seconds, kForward);
  EXPECT_EQ(profile.backward[0].seconds, 0);
  EXPECT_EQ(profile.backward[1].seconds, kForward);
  EXPECT_EQ(profile.backward[2].seconds, kForward);
  EXPECT_EQ(profile.step_seconds, 3 * kForward);
  EXPECT_TRUE(profile.roofline.known());
  EXPECT_NE(timesText(profile).find("roofline"), std::string::npos);
}

}  // namespace
}  // namespace remat
