#include "passes/retarget.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "passes/remat.h"
#include "passes/roofline.h"

namespace remat {
namespace {

constexpr ir::Roofline kRoofline{67e12, 4.8e12};

/// Every tensor of a step at [rows, 512] holds a multiple of 512 bytes.
torch::jit::Module mlp() {
  torch::jit::Module module("Mlp");
  module.register_parameter("weight", at::full({512, 512}, 0.01).set_requires_grad(true),
                            /*is_buffer=*/false);
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    x = torch.sigmoid(torch.gelu(torch.matmul(x, self.weight)))
    x = torch.sigmoid(torch.gelu(torch.matmul(x, self.weight)))
    x = torch.sigmoid(torch.gelu(torch.matmul(x, self.weight)))
    x = torch.sigmoid(torch.gelu(torch.matmul(x, self.weight)))
    return torch.matmul(x, self.weight)
)");
  return module;
}

std::vector<Budget> budgets() {
  std::vector<Budget> result;
  for (const double fraction : {0.9, 0.8, 0.7, 0.6}) {
    result.emplace_back();
    result.back().fraction = fraction;
  }
  return result;
}

/// The same step as CUDA would have recorded it, with the CPU's times.
ir::Profile cudaStub(ir::Profile profile) {
  profile.device = "cuda:0";
  profile.rounding = kCudaRounding;
  for (ir::StorageProfile& storage : profile.storages) {
    storage.bytes = ir::roundedUp(storage.bytes, kCudaRounding);
  }
  return profile;
}

/// The curve that a saved profile gives on `plan_for`.
std::vector<ir::Plan> curveOf(const torch::jit::Module& module, const at::Tensor& input,
                              const ir::Profile& profile, const std::string& plan_for) {
  OptimizeOptions options;
  options.profile_json = ir::toJson(profile);
  options.plan_for = plan_for;
  options.roofline = kRoofline;
  return planCurve(analyze(module, {input}, options), budgets(), options);
}

TEST(RetargetTest, TheSamePlanAndBytesForACudaProfileAndACpuProfile) {
  const torch::jit::Module module = mlp();
  const at::Tensor input = at::rand({256, 512});
  const ir::Profile cpu = analyze(module, {input}, {}).profile;
  const ir::Profile cuda = cudaStub(cpu);
  for (size_t i = 0; i < cpu.storages.size(); ++i) {
    ASSERT_EQ(cpu.storages[i].bytes, cuda.storages[i].bytes) << "storage " << i;
  }
  const std::vector<ir::Plan> on_cpu = curveOf(module, input, cpu, "");
  const std::vector<ir::Plan> on_cuda = curveOf(module, input, cuda, "cuda:0");
  ASSERT_EQ(on_cpu.size(), on_cuda.size());
  int recomputed = 0;
  for (size_t i = 0; i < on_cpu.size(); ++i) {
    EXPECT_EQ(on_cpu[i].budget, on_cuda[i].budget);
    EXPECT_EQ(on_cpu[i].predicted_peak, on_cuda[i].predicted_peak);
    EXPECT_EQ(on_cpu[i].keep, on_cuda[i].keep);
    EXPECT_EQ(on_cpu[i].recompute_seconds, on_cuda[i].recompute_seconds);
    recomputed += on_cpu[i].recomputed;
  }
  EXPECT_GT(recomputed, 0);
}

TEST(RetargetTest, BytesDifferByTheRoundingAlone) {
  const torch::jit::Module module = mlp();
  const at::Tensor input = at::rand({256, 512});
  ir::Profile cpu = analyze(module, {input}, {}).profile;
  for (ir::StorageProfile& storage : cpu.storages) {
    if (storage.bytes > 0) --storage.bytes;
  }
  const ir::Profile cuda = retarget(cpu, "cuda:0", kRoofline);
  int rounded = 0;
  for (size_t i = 0; i < cpu.storages.size(); ++i) {
    const int64_t added = cuda.storages[i].bytes - cpu.storages[i].bytes;
    EXPECT_GE(added, 0);
    EXPECT_LT(added, kCudaRounding);
    EXPECT_EQ(cuda.storages[i].bytes % kCudaRounding, 0);
    rounded += added > 0 ? 1 : 0;
  }
  EXPECT_GT(rounded, 4);
  EXPECT_GT(cuda.peak_bytes, cpu.peak_bytes);
  EXPECT_LT(cuda.peak_bytes, cpu.peak_bytes + static_cast<int64_t>(cpu.storages.size()) * 512);
  EXPECT_GT(cuda.baseline_peak_bytes, cpu.baseline_peak_bytes);
}

TEST(RetargetTest, SaysWhereItIsFrom) {
  const torch::jit::Module module = mlp();
  OptimizeOptions options;
  options.plan_for = "cuda:0";
  options.roofline = kRoofline;
  const ir::Profile profile = analyze(module, {at::rand({512, 512})}, options).profile;
  EXPECT_EQ(profile.device, "cuda:0");
  EXPECT_EQ(profile.recorded_on, "cpu");
  EXPECT_EQ(profile.rounding, kCudaRounding);
  EXPECT_TRUE(profile.derived());
  // Five products of 512³ and two gradients for each.
  const double products = 5 * 3 * 2 * 512.0 * 512 * 512 / kRoofline.flops;
  EXPECT_GT(profile.step_seconds, products);
  EXPECT_LT(profile.step_seconds, 10 * products);
  EXPECT_THROW(retarget(profile, "cuda:1", kRoofline), RematError) << "not of the CPU";
  ir::Profile extrapolated = profile;
  extrapolated.device = "cpu";
  extrapolated.extrapolated_from = {2, 4};
  EXPECT_THROW(retarget(extrapolated, "cuda:0", kRoofline), RematError);
}

TEST(RetargetTest, NothingIsMeasured) {
  OptimizeOptions options;
  options.plan_for = "cuda:0";
  options.roofline = kRoofline;
  options.budget.fraction = 0.7;
  const OptimizeResult result = optimize(mlp(), {at::rand({256, 512})}, options);
  EXPECT_TRUE(result.changed);
  EXPECT_EQ(result.measured_peak, 0);
  EXPECT_EQ(result.annotations.device, "cuda:0");
  EXPECT_EQ(result.saved_plan.device, "cuda:0");
  EXPECT_NE(result.saved_plan.times.find("roofline"), std::string::npos);
}

TEST(RetargetTest, BatchesAreTakenOverOneByOne) {
  OptimizeOptions options;
  options.plan_for = "cuda:0";
  options.roofline = kRoofline;
  options.profile_batches = {64, 128};
  const ir::Profile small = analyze(mlp(), {at::rand({256, 512})}, options).profile;
  options.profile_batches.clear();
  const ir::Profile whole = analyze(mlp(), {at::rand({256, 512})}, options).profile;
  EXPECT_EQ(small.device, "cuda:0");
  EXPECT_EQ(small.rounding, kCudaRounding);
  ASSERT_EQ(small.nodes.size(), whole.nodes.size());
  for (size_t i = 0; i < whole.nodes.size(); ++i) {
    EXPECT_NEAR(small.nodes[i].seconds, whole.nodes[i].seconds, 1e-3 * whole.nodes[i].seconds);
  }
  for (size_t i = 0; i < whole.storages.size(); ++i) {
    EXPECT_EQ(small.storages[i].bytes, whole.storages[i].bytes);
  }
}

TEST(RetargetTest, NamesKernelsThatSaveOther) {
  ir::Profile profile;
  profile.nodes.resize(3);
  profile.nodes[0].op = "aten::relu";
  profile.nodes[1].op = "aten::batch_norm";
  profile.nodes[2].op = "aten::batch_norm";
  EXPECT_TRUE(otherInternals(profile).empty()) << "recorded where it is for";
  profile.recorded_on = "cpu";
  EXPECT_EQ(otherInternals(profile), std::vector<std::string>{"aten::batch_norm"});
}

}  // namespace
}  // namespace remat
