#include "ir/outline.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <functional>
#include <sstream>

#include "ir/dump.h"
#include "passes/prepare.h"
#include "passes/rewriter.h"

namespace remat::ir {
namespace {

using torch::jit::Module;

Module saveAndLoad(const Module& module) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

/// A module with one submodule, saved and loaded as a user's file is.
Module makeModel(const std::string& code) {
  Module inner("Inner");
  inner.register_parameter("w", at::randn({4, 4}).requires_grad_(), false);
  inner.define("def forward(self, x):\n    return torch.relu(torch.matmul(x, self.w))\n");
  Module model("Model");
  model.register_module("inner", inner);
  model.register_buffer("scale", at::ones({4}));
  model.register_attribute("training", c10::BoolType::get(), true);
  model.define(code);
  return saveAndLoad(model);
}

constexpr const char* kPlain = R"(
def forward(self, x, n: int = 2):
    h = self.inner.forward(x)
    return torch.tanh(h) * n * self.scale

def other(self, x):
    return x + 1
)";

/// The region of `method` with every value recomputed that may be.
std::shared_ptr<torch::jit::Graph> makeRegion(const Module& module, const std::string& method) {
  return rewriteRegion(prepareGraph(module, method), {});
}

Module optimized(const Module& module, const std::string& method = "forward") {
  Module copy = cloneForRewrite(module);
  outlineRegion(copy, method, makeRegion(copy, method));
  return copy;
}

std::string dump(const Module& module, const std::string& method = "forward") {
  return dumpGraph(*module.get_method(method).graph());
}

std::vector<std::string> methodNames(const Module& module) {
  std::vector<std::string> names;
  for (const auto& method : module.get_methods()) names.push_back(method.name());
  return names;
}

TEST(Outline, CallsItsRegion) {
  const Module model = makeModel(kPlain);
  const Module changed = optimized(model);
  EXPECT_TRUE(isOptimized(changed, "forward"));
  EXPECT_FALSE(isOptimized(changed, "other"));
  EXPECT_EQ(optimizedMethods(changed), std::vector<std::string>{"forward"});
  EXPECT_EQ(regionMethod(changed, "forward"), "remat_region_forward_0");
  EXPECT_EQ(originalMethod(changed, "forward"), "remat_original_forward");
  EXPECT_NE(regionGraph(changed, "forward")->toString(false).find("aten::tanh"), std::string::npos);
}

TEST(Outline, LeavesTheModelThatItWasMadeFromAlone) {
  const Module model = makeModel(kPlain);
  const std::string before = dump(model);
  const Module changed = optimized(model);
  EXPECT_EQ(dump(model), before);
  EXPECT_EQ(methodNames(model), (std::vector<std::string>{"forward", "other"}));
  EXPECT_NE(model.type(), changed.type());
  EXPECT_TRUE(model.attr("scale").toTensor().is_same(changed.attr("scale").toTensor()));
  EXPECT_EQ(&model.attr("inner").toObjectRef(), &changed.attr("inner").toObjectRef());
}

TEST(Outline, StripGivesTheOriginalBack) {
  const Module model = makeModel(kPlain);
  Module changed = saveAndLoad(optimized(model));
  strip(changed, "forward");
  EXPECT_FALSE(isOptimized(changed, "forward"));
  EXPECT_EQ(methodNames(changed), methodNames(model));
  EXPECT_EQ(dump(changed), dump(model));
  EXPECT_EQ(dump(saveAndLoad(changed)), dump(model));
}

TEST(Outline, StripWorksOnAModuleThatHasRun) {
  const Module model = makeModel(kPlain);
  Module changed = optimized(model);
  const at::Tensor x = at::randn({2, 4});
  const at::Tensor expected = changed.forward({x}).toTensor();
  strip(changed, "forward");
  EXPECT_TRUE(changed.forward({x}).toTensor().equal(expected));
}

TEST(Outline, KeepsDefaultArguments) {
  Module changed = saveAndLoad(optimized(makeModel(kPlain)));
  const at::Tensor x = at::randn({2, 4});
  EXPECT_TRUE(changed.forward({x}).toTensor().equal(changed.forward({x, 2}).toTensor()));
  strip(changed, "forward");
  EXPECT_TRUE(changed.forward({x}).toTensor().equal(changed.forward({x, 2}).toTensor()));
}

TEST(Outline, OptimisingTwiceStripsFirst) {
  const Module model = makeModel(kPlain);
  Module twice = optimized(model);
  outlineRegion(twice, "forward", makeRegion(twice, "forward"));
  EXPECT_EQ(twice.get_methods().size(), 4);
  EXPECT_EQ(dumpGraph(*originalGraph(twice, "forward")), dump(model));
}

TEST(Outline, SeveralMethods) {
  const Module model = makeModel(kPlain);
  Module changed = optimized(model);
  outlineRegion(changed, "other", makeRegion(changed, "other"));
  EXPECT_EQ(optimizedMethods(changed), (std::vector<std::string>{"forward", "other"}));
  changed = saveAndLoad(changed);
  strip(changed, "forward");
  EXPECT_EQ(optimizedMethods(changed), std::vector<std::string>{"other"});
  strip(changed, "other");
  EXPECT_EQ(methodNames(changed), methodNames(model));
}

TEST(Outline, NamesThatAreTakenGetASuffix) {
  const Module model = makeModel(R"(
def forward(self, x):
    return torch.tanh(x)

def remat_region_forward_0(self, x):
    return x
)");
  Module changed = saveAndLoad(optimized(model));
  EXPECT_EQ(regionMethod(changed, "forward"), "remat_region_forward_0_1");
  EXPECT_EQ(originalMethod(changed, "forward"), "remat_original_forward_1");
  strip(changed, "forward");
  EXPECT_EQ(methodNames(changed), methodNames(model));
  EXPECT_EQ(dump(changed), dump(model));
}

TEST(Outline, ErrorsSayWhatIsWrong) {
  Module model = makeModel(kPlain);
  EXPECT_THROW(strip(model, "forward"), c10::Error);
  EXPECT_THROW(regionGraph(model, "forward"), c10::Error);
  try {
    outlineRegion(model, "other", prepareGraph(model, "forward"));
    FAIL() << "a region with other arguments was taken";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("other"), std::string::npos);
  }
  EXPECT_FALSE(isOptimized(model, "other"));
}

TEST(Outline, InMemoryFormHoldsTheSameGraph) {
  const Module model = makeModel(kPlain);
  const auto region = makeRegion(model, "forward");
  const auto graph = regionNodeGraph(*region);
  EXPECT_EQ(dumpGraph(*regionOfNodeGraph(*graph)), dumpGraph(*region));
  EXPECT_THROW(regionOfNodeGraph(*region), c10::Error);
}

/// Every kind of result survives: forward, save, load, train, clone, deepcopy.
class OutlineResults : public ::testing::TestWithParam<const char*> {};

std::vector<at::Tensor> tensorsOf(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  value.visit([&](const c10::IValue& inner) {
    if (inner.isTensor()) tensors.push_back(inner.toTensor());
    return false;
  });
  return tensors;
}

std::vector<at::Tensor> trainStep(Module module) {
  for (const at::Tensor& parameter : module.parameters()) parameter.mutable_grad() = at::Tensor();
  at::manual_seed(1);
  const at::Tensor x = at::randn({2, 4});
  std::vector<at::Tensor> results = tensorsOf(module.forward({x}));
  std::vector<at::Tensor> roots;
  for (const at::Tensor& result : results) {
    if (result.requires_grad()) roots.push_back(result.sum());
  }
  if (!roots.empty()) torch::autograd::backward(roots);
  for (at::Tensor& result : results) result = result.detach().clone();
  for (const at::Tensor& parameter : module.parameters()) {
    results.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::empty({0}));
  }
  return results;
}

/// Copies made while gradients are on are no leaves.
Module asLeaves(const std::function<Module()>& copy) {
  const at::NoGradGuard no_grad;
  Module module = copy();
  for (const at::Tensor& parameter : module.parameters()) parameter.requires_grad_();
  return module;
}

void expectSame(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "tensor " << i;
}

TEST_P(OutlineResults, SurviveEverything) {
  const torch::jit::GraphOptimizerEnabledGuard guard(false);
  const Module model = makeModel(GetParam());
  const std::vector<at::Tensor> expected = trainStep(model);
  Module changed = optimized(model);
  expectSame(trainStep(changed), expected);
  const Module loaded = saveAndLoad(changed);
  for (int call = 0; call < 4; ++call) expectSame(trainStep(loaded), expected);
  expectSame(trainStep(asLeaves([&] { return loaded.clone(); })), expected);
  expectSame(trainStep(asLeaves([&] { return loaded.deepcopy(); })), expected);
  expectSame(trainStep(saveAndLoad(asLeaves([&] { return loaded.clone(); }))), expected);
  Module stripped = loaded;
  strip(stripped, "forward");
  EXPECT_EQ(dump(stripped), dump(model));
  expectSame(trainStep(stripped), expected);
}

INSTANTIATE_TEST_SUITE_P(Kinds, OutlineResults,
                         ::testing::Values(R"(
def forward(self, x):
    return torch.tanh(self.inner.forward(x))
)",
                                           R"(
def forward(self, x):
    h = self.inner.forward(x)
    return torch.tanh(h), torch.sigmoid(h), 3
)",
                                           R"(
def forward(self, x):
    h = self.inner.forward(x)
    return [torch.tanh(h), torch.sigmoid(h)]
)",
                                           R"(
def forward(self, x):
    h = self.inner.forward(x)
    return {"a": torch.tanh(h), "b": torch.sigmoid(h)}
)",
                                           R"(
def forward(self, x) -> Optional[Tensor]:
    h = self.inner.forward(x)
    if h.size(0) > 100:
        return None
    return torch.tanh(h)
)",
                                           R"(
def forward(self, x, mask: Optional[Tensor] = None):
    h = self.inner.forward(x)
    if mask is not None:
        h = h * mask
    return torch.tanh(h), (h, [h])
)",
                                           R"(
def forward(self, x) -> None:
    self.scale.add_(torch.tanh(self.inner.forward(x)).detach().sum())
)"));

}  // namespace
}  // namespace remat::ir
