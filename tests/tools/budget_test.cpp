#include "tools/budget.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace remat::tools {
namespace {

TEST(Budget, Percentage) {
  const Budget budget = parseBudget("50%");
  EXPECT_EQ(budget.kind, Budget::Kind::kFraction);
  EXPECT_DOUBLE_EQ(budget.fraction, 0.5);
  EXPECT_DOUBLE_EQ(parseBudget("33.3 %").fraction, 0.333);
}

TEST(Budget, Bytes) {
  const Budget budget = parseBudget("900MB");
  EXPECT_EQ(budget.kind, Budget::Kind::kBytes);
  EXPECT_EQ(budget.bytes, 900'000'000);
  EXPECT_EQ(parseBudget("2GiB").bytes, int64_t{2} << 30);
  EXPECT_EQ(parseBudget("1.5 kib").bytes, 1536);
}

TEST(Budget, Minimum) { EXPECT_EQ(parseBudget("min").kind, Budget::Kind::kMinimum); }

TEST(Budget, Units) {
  EXPECT_EQ(parseBytes("7B"), 7);
  EXPECT_EQ(parseBytes("0MB"), 0);
  EXPECT_EQ(parseBytes("1TB"), 1'000'000'000'000);
  EXPECT_EQ(parseBytes("1TiB"), int64_t{1} << 40);
}

TEST(Budget, OptimizerState) {
  EXPECT_EQ(optimizerBytesPerElement("sgd", 4), 0);
  EXPECT_EQ(optimizerBytesPerElement("momentum", 4), 4);
  EXPECT_EQ(optimizerBytesPerElement("adam", 2), 4);
  EXPECT_EQ(optimizerBytesPerElement("12", 4), 12);
  EXPECT_THROW(optimizerBytesPerElement("adamw2", 4), std::invalid_argument);
}

TEST(Budget, Overhead) {
  EXPECT_DOUBLE_EQ(parsePercentage("120%"), 1.2);
  EXPECT_THROW(parsePercentage("20"), std::invalid_argument);
  EXPECT_THROW(parsePercentage("-5%"), std::invalid_argument);
}

TEST(BudgetTest, Rooflines) {
  EXPECT_EQ(parseRoofline("67T,4.8T").flops, 67e12);
  EXPECT_EQ(parseRoofline("67T,4.8T").bytes, 4.8e12);
  EXPECT_EQ(parseRoofline("6.7e13, 2P").flops, 6.7e13);
  EXPECT_EQ(parseRoofline("6.7e13, 2P").bytes, 2e15);
  for (const char* const wrong :
       {"", "67T", "67T,", ",4T", "0,4T", "-1T,4T", "67T,4T,1", "67X,4T", "nan,1", "inf,1"}) {
    EXPECT_THROW(parseRoofline(wrong), std::invalid_argument) << wrong;
  }
}

TEST(BudgetTest, MemorySizes) {
  EXPECT_EQ(parseMemorySize("90%").share, 0.9);
  EXPECT_EQ(parseMemorySize("90%").bytes, 0);
  EXPECT_EQ(parseMemorySize("2GiB").bytes, int64_t{2} << 30);
  EXPECT_EQ(parseMemorySize("2GiB").share, 0);
  EXPECT_FALSE(MemorySize().given());
  for (const char* const wrong : {"", "0%", "101%", "%", "0MB", "90", "many"}) {
    EXPECT_THROW(parseMemorySize(wrong), std::invalid_argument) << wrong;
  }
}

struct Malformed {
  const char* text;
  const char* message;
};

class MalformedBudget : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedBudget, SaysWhatIsWrong) {
  try {
    parseBudget(GetParam().text);
    FAIL() << GetParam().text << " was accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, MalformedBudget,
    ::testing::Values(Malformed{"", "is no budget"}, Malformed{"half", "is no budget"},
                      Malformed{"-50%", "is no budget"},
                      Malformed{"50", "has no unit; say 50%, 50MB, or 50B for bytes"},
                      Malformed{"0%", "not between 0% and 100%"},
                      Malformed{"150%", "not between 0% and 100%"},
                      Malformed{"5..5%", "is no budget"}, Malformed{"900MX", "'MX' is no unit"},
                      Malformed{"0MB", "no memory at all"}, Malformed{"99999999999TB", "too large"},
                      Malformed{"nan%", "is no budget"}));

}  // namespace
}  // namespace remat::tools
