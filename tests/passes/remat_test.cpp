// The front door in C++: what tools other than remat-opt call.

#include "passes/remat.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include "ir/outline.h"
#include "ir/profile.h"
#include "passes/max_batch.h"
#include "passes/training_step.h"

namespace remat {
namespace {

using torch::jit::Module;

/// Three layers in a submodule of their own each.
Module sample() {
  at::manual_seed(1);
  Module module("Sample");
  for (const char* name : {"first", "second", "third"}) {
    Module layer(std::string("Layer_") + name);
    const at::Tensor weight = at::randn({64, 64}).div_(8).set_requires_grad(true);
    layer.register_parameter("w", weight, /*is_buffer=*/false);
    layer.define(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.gelu(torch.tanh(torch.matmul(x, self.w)))
)");
    module.register_module(name, layer);
  }
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    return self.third.forward(self.second.forward(self.first.forward(x))).sum(1)
)");
  return module;
}

std::vector<c10::IValue> inputsOf(int64_t batch = 128) {
  at::manual_seed(2);
  return {at::randn({batch, 64})};
}

OptimizeOptions optionsFor(double fraction) {
  OptimizeOptions options;
  options.budget.fraction = fraction;
  return options;
}

OptimizeOptions lowest() {
  OptimizeOptions options;
  options.budget.kind = Budget::Kind::kMinimum;
  return options;
}

std::vector<at::Tensor> gradientsOf(Module module) {
  module.forward(inputsOf()).toTensor().square().sum().backward();
  std::vector<at::Tensor> gradients;
  for (at::Tensor parameter : module.parameters()) {
    gradients.push_back(parameter.grad().clone());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

template <typename Error>
std::string errorOf(const OptimizeOptions& options) {
  try {
    optimize(sample(), inputsOf(), options);
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type: ") + error.what();
  }
  return "accepted";
}

TEST(RematTest, AResultKeepsItsBudgetAndItsGradients) {
  const Module module = sample();
  const OptimizeResult result = optimize(module, inputsOf(), optionsFor(0.7));
  ASSERT_TRUE(result.changed) << result.reason_unchanged;
  EXPECT_TRUE(ir::isOptimized(result.module, "forward"));
  EXPECT_FALSE(ir::isOptimized(module, "forward"));
  const auto budget = static_cast<int64_t>(0.7 * static_cast<double>(result.original_peak));
  EXPECT_GT(result.measured_peak, 0);
  EXPECT_LE(result.measured_peak, budget);
  EXPECT_LE(result.plan.predicted_peak, budget);
  EXPECT_GT(result.plan.recompute_share, 0);
  EXPECT_GT(result.extra_time_share, 0);
  EXPECT_EQ(result.annotations.predicted_peak, result.plan.predicted_peak);
  EXPECT_EQ(result.annotations.plan_hash, planHash(result.saved_plan));
  EXPECT_EQ(result.before_ir.find("remat::"), std::string::npos);
  EXPECT_NE(result.after_ir.find("remat::keep"), std::string::npos);
  EXPECT_NE(result.after_ir.find("# recomputed"), std::string::npos);
  torch::jit::setGraphExecutorOptimize(false);
  const std::vector<at::Tensor> expected = gradientsOf(module);
  const std::vector<at::Tensor> actual = gradientsOf(result.module);
  torch::jit::setGraphExecutorOptimize(true);
  ASSERT_EQ(expected.size(), 3U);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], actual[i])) << i;
}

TEST(RematTest, TheLowestPeakOfACurveCanBeAskedFor) {
  const Analysis analysis = analyze(sample(), inputsOf(), lowest());
  OptimizeOptions options;
  options.profile_json = ir::toJson(analysis.profile);
  const ir::Plan least = planCurve(analysis, {}, options).back();
  options.budget.kind = Budget::Kind::kBytes;
  options.budget.bytes = least.predicted_peak;
  const OptimizeResult result = optimize(sample(), inputsOf(), options);
  EXPECT_EQ(result.plan.predicted_peak, least.predicted_peak);
  EXPECT_LE(result.measured_peak, least.predicted_peak);
}

TEST(RematTest, AModelThatFitsStaysAsItIs) {
  const OptimizeResult result = optimize(sample(), inputsOf(), optionsFor(1));
  EXPECT_FALSE(result.changed);
  EXPECT_NE(result.reason_unchanged.find("is within the budget as it is"), std::string::npos);
  EXPECT_FALSE(ir::isOptimized(result.module, "forward"));
}

TEST(RematTest, AnOptimisedModelIsPlannedAnew) {
  const OptimizeResult once = optimize(sample(), inputsOf(), lowest());
  OptimizeOptions options = lowest();
  options.profile_json = ir::toJson(once.profile);
  const OptimizeResult twice = optimize(once.module, inputsOf(), options);
  EXPECT_EQ(planHash(twice.saved_plan), planHash(once.saved_plan));
  EXPECT_EQ(twice.before_ir, once.before_ir);
}

TEST(RematTest, ASavedPlanGivesTheSameMarks) {
  const OptimizeResult made = optimize(sample(), inputsOf(), lowest());
  OptimizeOptions options;
  options.plan_json = toJson(made.saved_plan);
  options.budget.fraction = 1;
  const OptimizeResult reused = optimize(sample(), inputsOf(), options);
  EXPECT_TRUE(reused.changed);
  EXPECT_EQ(planHash(reused.saved_plan), planHash(made.saved_plan));
  options.budget.fraction = 0.01;
  EXPECT_NE(errorOf<BudgetError>(options).find("above its budget"), std::string::npos);
  options.budget.fraction = 1;
  SavedPlan other = made.saved_plan;
  other.graph_hash = "0";
  options.plan_json = toJson(other);
  EXPECT_NE(errorOf<RematError>(options).find("made for another model"), std::string::npos);
  options.plan_json = "{";
  EXPECT_NE(errorOf<RematError>(options).find("the plan can't be used"), std::string::npos);
}

TEST(RematTest, ABudgetOutOfReachNamesTheLowestPeak) {
  OptimizeOptions options = optionsFor(0.01);
  try {
    optimize(sample(), inputsOf(), options);
    FAIL() << "accepted";
  } catch (const BudgetError& error) {
    EXPECT_GT(error.minimum_peak, 0);
    const std::string text = error.what();
    EXPECT_NE(text.find("(" + std::to_string(error.minimum_peak) + " bytes)"), std::string::npos);
  }
  options.reserve_bytes = int64_t{1} << 40;
  EXPECT_NE(errorOf<BudgetError>(options).find("takes the whole budget"), std::string::npos);
}

TEST(RematTest, OverheadBoundsTheExtraTime) {
  OptimizeOptions options;
  options.max_overhead = 0.05;
  options.measure = false;
  EXPECT_LE(optimize(sample(), inputsOf(), options).extra_time_share, 0.05);
}

TEST(RematTest, MistakesAreNamed) {
  OptimizeOptions options;
  options.method = "encode";
  EXPECT_EQ(errorOf<RematError>(options), "the model has no method encode");
  options = OptimizeOptions();
  options.allow_ops = {"no_such::op"};
  EXPECT_NE(errorOf<RematError>(options).find("no_such::op"), std::string::npos);
  options = OptimizeOptions();
  options.keep_modules = {"fourth"};
  EXPECT_NE(errorOf<ChoiceError>(options).find("fourth"), std::string::npos);
  options = OptimizeOptions();
  options.profile_json = "{}";
  EXPECT_NE(errorOf<RematError>(options).find("the profile can't be read"), std::string::npos);
  ir::Profile profile = analyze(sample(), inputsOf(), OptimizeOptions()).profile;
  profile.loss = "another";
  options.profile_json = ir::toJson(profile);
  EXPECT_NE(errorOf<RematError>(options).find("recorded for loss another"), std::string::npos);
  profile.graph_hash = "0";
  options.profile_json = ir::toJson(profile);
  EXPECT_NE(errorOf<RematError>(options).find("recorded for another model"), std::string::npos);
  options = OptimizeOptions();
  options.profile_batches = {2};
  EXPECT_NE(errorOf<RematError>(options).find("two batch sizes are needed"), std::string::npos);
  options.profile_batches = {2, 1000};
  EXPECT_NE(errorOf<RematError>(options).find("batch 1000"), std::string::npos);
}

TEST(RematTest, AModelThatCantBeTrainedIsNamedAsTheCause) {
  Module module("Writes");
  module.register_parameter("w", at::ones({64, 64}).set_requires_grad(true), /*is_buffer=*/false);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    y = torch.matmul(x, self.w)
    x.mul_(2)
    return y
)");
  try {
    optimize(module, inputsOf(), lowest());
    FAIL() << "trained";
  } catch (const StepError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("the model's own training step fails"));
    EXPECT_THAT(error.what(), testing::HasSubstr("modified by an inplace operation"));
  }
}

TEST(RematTest, KeptModulesAreNotRecomputed) {
  OptimizeOptions options = lowest();
  options.keep_modules = {"first", "second"};
  const OptimizeResult result = optimize(sample(), inputsOf(), options);
  for (const auto& [name, note] : result.annotations.values) {
    const bool chosen = note.module_path == "first" || note.module_path == "second";
    EXPECT_TRUE(note.kept || !chosen) << name;
  }
  EXPECT_LT(optimize(sample(), inputsOf(), lowest()).plan.predicted_peak,
            result.plan.predicted_peak);
}

TEST(RematTest, ACurveFallsToTheLowestPeak) {
  const OptimizeOptions options;
  const Analysis analysis = analyze(sample(), inputsOf(), options);
  const std::vector<ir::Plan> plans =
      planCurve(analysis, {optionsFor(0.9).budget, optionsFor(0.7).budget}, options);
  ASSERT_EQ(plans.size(), 3U);
  for (size_t i = 1; i < plans.size(); ++i) {
    EXPECT_LE(plans[i].predicted_peak, plans[i - 1].predicted_peak);
    EXPECT_GE(plans[i].recompute_seconds, plans[i - 1].recompute_seconds);
  }
}

TEST(RematTest, TwoSmallBatchesForetellALargeOne) {
  OptimizeOptions options = lowest();
  options.profile_batches = {32, 64};
  const OptimizeResult foretold = optimize(sample(), inputsOf(), options);
  EXPECT_EQ(foretold.profile.extrapolated_from, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(foretold.measured_peak, 0);
  const OptimizeResult measured = optimize(sample(), inputsOf(), lowest());
  EXPECT_EQ(foretold.profile.peak_bytes, measured.profile.peak_bytes);
}

TEST(RematTest, TheLargestBatchFillsTheBudget) {
  OptimizeOptions options;
  options.profile_batches = {8, 16};
  const int64_t budget = optimize(sample(), inputsOf(), lowest()).original_peak;
  const MaxBatch most = maxBatch(sample(), inputsOf(), options, [&](int64_t) { return budget; });
  EXPECT_GE(most.without_remat, 100);
  EXPECT_GT(most.batch, most.without_remat);
  EXPECT_LE(most.plan.predicted_peak, budget);
  EXPECT_EQ(most.from, (std::vector<int64_t>{8, 16}));
  EXPECT_THROW(maxBatch(sample(), inputsOf(), options, [](int64_t) { return int64_t{1}; }),
               BudgetError);
}

}  // namespace
}  // namespace remat
