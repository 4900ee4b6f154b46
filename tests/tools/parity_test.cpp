#include "tools/parity.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace remat::tools {
namespace {

StepOutcome outcome() {
  StepOutcome step;
  step.outputs = {at::tensor({1.0F, -2.0F})};
  step.gradients = {at::tensor({100.0F}), at::tensor({1e-7F}), at::Tensor()};
  step.buffers = {at::tensor({3}, at::kLong)};
  step.next_draw = at::tensor({0.5F});
  return step;
}

Parity compare(const StepOutcome& a, const StepOutcome& b) {
  Parity parity;
  compareSteps(a, b, kDefaultTolerance, parity);
  return parity;
}

TEST(Parity, EqualStepsAreBitwise) {
  const Parity parity = compare(outcome(), outcome());
  EXPECT_EQ(parity.worst(), Match::kBitwise);
  EXPECT_EQ(parity.max_difference, 0);
}

TEST(Parity, SmallDifferencesAreClose) {
  StepOutcome other = outcome();
  other.outputs[0] = at::tensor({1.0F, -2.0F * (1 + 4e-6F)});
  const Parity parity = compare(outcome(), other);
  EXPECT_EQ(parity.outputs, Match::kClose);
  EXPECT_EQ(parity.gradients, Match::kBitwise);
  EXPECT_NEAR(parity.max_difference, 4e-6, 1e-6);
}

TEST(Parity, LargeDifferencesAreDifferent) {
  StepOutcome other = outcome();
  other.buffers[0] = at::tensor({4}, at::kLong);
  EXPECT_EQ(compare(outcome(), other).buffers, Match::kDifferent);
  EXPECT_EQ(compare(outcome(), other).worst(), Match::kDifferent);
}

TEST(Parity, GradientsThatAreRoundingNoiseAreJudgedByTheLargest) {
  StepOutcome other = outcome();
  other.gradients[1] = at::tensor({5e-6F});  // 1e-5 of a hundredth of 100 is 1e-5
  EXPECT_EQ(compare(outcome(), other).gradients, Match::kClose);
  EXPECT_LE(compare(outcome(), other).max_difference, kDefaultTolerance) << "as it was judged";
  other.gradients[1] = at::tensor({5e-5F});
  EXPECT_EQ(compare(outcome(), other).gradients, Match::kDifferent);
}

TEST(Parity, SignOfZeroIsNotBitwise) {
  StepOutcome positive = outcome();
  StepOutcome negative = outcome();
  positive.outputs[0] = at::tensor({0.0F});
  negative.outputs[0] = at::tensor({-0.0F});
  EXPECT_EQ(compare(positive, negative).outputs, Match::kClose);
}

TEST(Parity, NotANumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  StepOutcome nan = outcome();
  nan.outputs[0] = at::tensor({1.0F, kNan});
  EXPECT_EQ(compare(nan, nan).outputs, Match::kBitwise);
  EXPECT_EQ(compare(outcome(), nan).outputs, Match::kDifferent);
  EXPECT_EQ(compare(nan, outcome()).outputs, Match::kDifferent);
}

TEST(Parity, Infinities) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  StepOutcome infinite = outcome();
  infinite.outputs[0] = at::tensor({1.0F, kInfinity});
  EXPECT_EQ(compare(infinite, infinite).outputs, Match::kBitwise);
  EXPECT_EQ(compare(infinite, outcome()).outputs, Match::kDifferent);
}

TEST(Parity, MissingGradientsShapesAndDtypes) {
  StepOutcome missing = outcome();
  missing.gradients[0] = at::Tensor();
  EXPECT_EQ(compare(outcome(), missing).gradients, Match::kDifferent);
  StepOutcome shape = outcome();
  shape.outputs[0] = at::ones({2, 1});
  EXPECT_EQ(compare(outcome(), shape).outputs, Match::kDifferent);
  StepOutcome dtype = outcome();
  dtype.outputs[0] = dtype.outputs[0].to(at::kDouble);
  EXPECT_EQ(compare(outcome(), dtype).outputs, Match::kDifferent);
  StepOutcome fewer = outcome();
  fewer.outputs.clear();
  EXPECT_EQ(compare(outcome(), fewer).outputs, Match::kDifferent);
}

TEST(Parity, ComplexNumbersAndMemoryFormats) {
  StepOutcome a = outcome();
  a.outputs[0] = at::rand({2, 3, 4, 4}, at::kComplexFloat);
  StepOutcome b = outcome();
  b.outputs[0] = a.outputs[0].contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(compare(a, b).outputs, Match::kBitwise);
  b.outputs[0] = a.outputs[0] + 1;
  EXPECT_EQ(compare(a, b).outputs, Match::kDifferent);
}

}  // namespace
}  // namespace remat::tools
