#include "tools/input_spec.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace remat::tools {
namespace {

at::Tensor makeOne(const std::string& text) {
  return makeInputs({parseInputSpec(text)}, /*seed=*/0, c10::Device(c10::kCPU)).at(0).toTensor();
}

TEST(InputSpec, Shape) {
  const at::Tensor tensor = makeOne("16x3x5");
  EXPECT_EQ(tensor.sizes().vec(), (std::vector<int64_t>{16, 3, 5}));
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  EXPECT_FALSE(tensor.requires_grad());
}

TEST(InputSpec, Scalar) { EXPECT_EQ(makeOne("scalar:float64").dim(), 0); }

TEST(InputSpec, IntegersInRangeBothEndsIncluded) {
  const at::Tensor tensor = makeOne("4x512:int64:3..5");
  EXPECT_EQ(tensor.scalar_type(), at::kLong);
  EXPECT_EQ(tensor.min().item<int64_t>(), 3);
  EXPECT_EQ(tensor.max().item<int64_t>(), 5);
}

TEST(InputSpec, IntegersDefaultToZeroAndOne) {
  const at::Tensor tensor = makeOne("1000:int32");
  EXPECT_EQ(tensor.min().item<int>(), 0);
  EXPECT_EQ(tensor.max().item<int>(), 1);
}

TEST(InputSpec, FloatsInRange) {
  const at::Tensor tensor = makeOne("1000:float64:-2.5..-1e0");
  EXPECT_GE(tensor.min().item<double>(), -2.5);
  EXPECT_LE(tensor.max().item<double>(), -1);
}

TEST(InputSpec, EveryDtype) {
  for (const char* name :
       {"float32", "float", "float64", "double", "float16", "half", "bfloat16", "int8", "uint8",
        "int16", "int32", "int", "int64", "long", "bool", "complex64", "complex128"}) {
    EXPECT_EQ(makeOne("2x2:" + std::string(name)).numel(), 4) << name;
  }
}

TEST(InputSpec, RequiresGrad) {
  EXPECT_TRUE(makeOne("8:grad").requires_grad());
  EXPECT_TRUE(makeOne("8:bfloat16:grad").requires_grad());
  EXPECT_TRUE(makeOne("8:float32:0..1:grad").requires_grad());
}

TEST(InputSpec, ValuesThatAreNoTensors) {
  const c10::Device cpu(c10::kCPU);
  const auto value = [&](const char* text) {
    return makeInputs({parseInputSpec(text)}, 0, cpu).at(0);
  };
  EXPECT_EQ(value("int=-3").toInt(), -3);
  EXPECT_EQ(value("float=0.5").toDouble(), 0.5);
  EXPECT_TRUE(value("bool=true").toBool());
  EXPECT_EQ(value("str=a=b").toStringRef(), "a=b");
  EXPECT_TRUE(value("none").isNone());
}

TEST(InputSpec, SameSeedSameInputs) {
  EXPECT_TRUE(makeOne("5x5").equal(makeOne("5x5")));
  const auto two =
      makeInputs({parseInputSpec("5"), parseInputSpec("5")}, 0, c10::Device(c10::kCPU));
  EXPECT_FALSE(two[0].toTensor().equal(two[1].toTensor()));
}

struct Malformed {
  const char* spec;
  const char* message;
};

class MalformedInputSpec : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedInputSpec, SaysWhatIsWrongWhere) {
  try {
    parseInputSpec(GetParam().spec);
    FAIL() << GetParam().spec << " was accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, MalformedInputSpec,
    ::testing::Values(Malformed{"", "position 1: expected a shape"},
                      Malformed{"16xx3", "position 4: expected a size"},
                      Malformed{"16x3x", "position 6: expected a size"},
                      Malformed{"16xa", "position 4: expected a size, as in 16x3x224x224, got 'a'"},
                      Malformed{"16,3", "position 1: expected a size"},
                      Malformed{"0.5", "or float=0.5, bool=true, got '0.5'"},
                      Malformed{"16x-3", "position 4: sizes are at least 1"},
                      Malformed{"0x3", "position 1: sizes are at least 1"},
                      Malformed{"9999999999x9999999999", "too many elements"},
                      Malformed{"99999999999999999999", "expected a size"},
                      Malformed{"4:int65", "position 3: 'int65' is no dtype"},
                      Malformed{"4:", "position 3: '' is no dtype"},
                      Malformed{"4:int64:5", "position 9: expected a range"},
                      Malformed{"4:int64:5..1", "position 9: the range's low end is above"},
                      Malformed{"4:int64:0..1.5", "position 12: expected a whole number"},
                      Malformed{"4:uint8:0..256", "position 12: does not fit Byte"},
                      Malformed{"4:float32:a..1", "position 11: expected a number"},
                      Malformed{"4:float32:0..inf", "position 14: expected a number"},
                      Malformed{"4:int64:grad", "only floating-point inputs"},
                      Malformed{"4:grad:float32", "nothing may follow ':grad'"},
                      Malformed{"4:float32:0..1:2..3", "only ':grad' may follow"},
                      Malformed{"4:complex64:0..1", "complex inputs take no range"},
                      Malformed{"int=1.5", "position 5: expected a whole number"},
                      Malformed{"bool=1", "position 6: expected true or false"},
                      Malformed{"list=1", "position 1: expected int="}));

}  // namespace
}  // namespace remat::tools
