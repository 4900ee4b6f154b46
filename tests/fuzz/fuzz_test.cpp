// A short run of the fuzzer with fixed seeds, what it found before, and whether it would find
// anything at all.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/fuzz_program.h"
#include "tests/fuzz/generator.h"
#include "tests/fuzz/ir_case.h"
#include "tests/fuzz/shrink.h"

namespace remat::fuzz {
namespace {

bool differs(const Outcome& outcome) { return outcome.verdict == Verdict::kDifferent; }

TEST(Fuzz, RandomProgramsTrainAsInEagerMode) {
  at::set_num_threads(1);
  constexpr uint64_t kPrograms = 250;
  int trained = 0;
  int recomputed = 0;
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const Program program = randomProgram(seed);
    const Outcome outcome = runProgram(program, seed);
    EXPECT_FALSE(differs(outcome)) << "seed " << seed << ": " << outcome.detail << "\n"
                                   << describe(program, seed);
    trained += outcome.verdict == Verdict::kUntrainable ? 0 : 1;
    recomputed += outcome.replayed > 0 ? 1 : 0;
  }
  EXPECT_GT(trained, static_cast<int>(kPrograms) / 2);
  EXPECT_GT(recomputed, trained / 2);
}

TEST(Fuzz, WhatItFoundBeforeTrainsAsInEagerMode) {
  at::set_num_threads(1);
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/cases")) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const Outcome outcome = run(trialFromIr(text));
    EXPECT_EQ(outcome.verdict, Verdict::kSame) << entry.path() << ": " << outcome.detail << "\n"
                                               << outcome.rewritten;
    ++cases;
  }
  EXPECT_GT(cases, 0);
}

TEST(Fuzz, FindsAnOperatorThatForgetsAndShrinksTheProgram) {
  at::set_num_threads(1);
  registerForgetful();
  const auto forgets = [](const Program& program, uint64_t seed) {
    return differs(runProgram(program, seed));
  };
  uint64_t seed = 1;
  while (!forgets(randomProgram(seed, /*forgetful=*/true), seed)) {
    ASSERT_LT(++seed, 200U) << "the planted fault was not found";
  }
  const Program program = randomProgram(seed, /*forgetful=*/true);
  constexpr int kAttempts = 200;
  const Program small = shrink(
      program, [&](const Program& one) { return forgets(one, seed); }, kAttempts);
  const std::string source = sourceOf(small);
  EXPECT_NE(source.find("forgetful"), std::string::npos) << source;
  EXPECT_TRUE(forgets(small, seed)) << source;
  EXPECT_LT(sizeOf(small.statements), sizeOf(program.statements) / 2) << source;
}

TEST(Fuzz, ACaseSurvivesItsText) {
  int read = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Trial trial;
    try {
      trial = compile(randomProgram(seed), seed);
    } catch (const std::exception&) {
      continue;
    }
    const std::string text = toIr(trial);
    Trial again;
    ASSERT_NO_THROW(again = trialFromIr(text)) << text;
    const Outcome before = run(trial);
    const Outcome after = run(again);
    EXPECT_EQ(before.verdict, after.verdict) << text << before.detail << "\n" << after.detail;
    ++read;
  }
  EXPECT_GT(read, 20);
}

}  // namespace
}  // namespace remat::fuzz
