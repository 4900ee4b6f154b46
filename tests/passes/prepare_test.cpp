// A prepared graph computes what the method does, bit for bit: outputs, gradients, buffers, the
// next random draw, for calls 1 to 4, with TorchScript's optimisation off. The graph runs as a
// region in which everything is kept.

#include "passes/prepare.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <numeric>
#include <sstream>

#include "ir/outline.h"
#include "ir/region_order.h"
#include "passes/rewriter.h"

namespace remat {
namespace {

using torch::jit::Module;

Module makeModel(const std::string& code) {
  at::manual_seed(0);
  Module conv("Conv");
  conv.register_parameter("weight", at::randn({4, 4, 3, 3}).mul_(0.2).requires_grad_(), false);
  conv.register_parameter("bias", at::randn({4}).requires_grad_(), false);
  conv.register_buffer("mean", at::zeros({4}));
  conv.register_buffer("var", at::ones({4}));
  conv.register_buffer("count", at::zeros({}, at::kLong));
  conv.register_attribute("training", c10::BoolType::get(), true);
  conv.define(R"(
def forward(self, x):
    h = torch.conv2d(x, self.weight, self.bias, [1, 1], [1, 1])
    if self.training:
        self.count.add_(1)
    return torch.batch_norm(h, None, None, self.mean, self.var, self.training, 0.1, 1e-5, False)
)");
  Module model("Model");
  model.register_module("a", conv.deepcopy());
  model.register_module("b", conv.deepcopy());
  model.register_attribute("training", c10::BoolType::get(), true);
  model.define(code);
  std::stringstream file;
  model.save(file);
  return torch::jit::load(file);
}

int countOps(const torch::jit::Block& block, const std::string& suffix) {
  int count = 0;
  for (const auto* node : block.nodes()) {
    const std::string op = node->kind().toQualString();
    count += op.size() >= suffix.size() && op.substr(op.size() - suffix.size()) == suffix ? 1 : 0;
    for (const auto* inner : node->blocks()) count += countOps(*inner, suffix);
  }
  return count;
}

struct Result {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> buffers;
  at::Tensor draw;
};

Result step(Module module, int call, bool autocast) {
  for (const at::Tensor& parameter : module.parameters()) parameter.mutable_grad() = at::Tensor();
  at::manual_seed(100 + call);
  const at::Tensor x = at::randn({2, 4, 6, 6});
  at::autocast::set_autocast_enabled(at::kCPU, autocast);
  Result result;
  result.output = module.forward({x}).toTensor();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  torch::autograd::backward({result.output.to(at::kFloat).pow(2).sum()});
  result.output = result.output.detach().clone();
  for (const at::Tensor& parameter : module.parameters())
    result.gradients.push_back(parameter.grad().clone());
  for (const at::Tensor& buffer : module.buffers()) result.buffers.push_back(buffer.clone());
  result.draw = at::rand({4});
  return result;
}

void expectSame(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].equal(b[i])) << what << " " << i;
    EXPECT_EQ(a[i].scalar_type(), b[i].scalar_type()) << what << " " << i;
  }
}

struct Example {
  const char* name;
  const char* code;
  int relus_left;  ///< `relu_` that stay in place
};

class PrepareParity : public ::testing::TestWithParam<Example> {
 protected:
  void check(bool training, bool autocast) {
    const torch::jit::GraphOptimizerEnabledGuard guard(false);
    // TorchScript's own autocast pass rounds differently from eager, which is what counts.
    torch::jit::setAutocastMode(false);
    Module original = makeModel(GetParam().code);
    original.train(training);
    Module prepared = ir::cloneForRewrite(makeModel(GetParam().code));
    prepared.train(training);
    const auto graph = prepareGraph(prepared, "forward");
    EXPECT_EQ(countOps(*graph->block(), "relu_"), GetParam().relus_left);
    std::vector<int32_t> everything(ir::regionOrder(*graph).values.size());
    std::iota(everything.begin(), everything.end(), 0);
    ir::outlineRegion(prepared, "forward", rewriteRegion(graph, {everything}));
    for (int call = 0; call < 4; ++call) {
      SCOPED_TRACE("call " + std::to_string(call));
      const Result a = step(original, call, autocast);
      const Result b = step(prepared, call, autocast);
      expectSame({a.output, a.draw}, {b.output, b.draw}, "output or draw");
      expectSame(a.gradients, b.gradients, "gradient");
      expectSame(a.buffers, b.buffers, "buffer");
    }
  }
};

TEST_P(PrepareParity, Training) { check(true, false); }
TEST_P(PrepareParity, Evaluation) { check(false, false); }
TEST_P(PrepareParity, Autocast) { check(true, true); }

INSTANTIATE_TEST_SUITE_P(
    Models, PrepareParity,
    ::testing::Values(Example{"residual", R"(
def forward(self, x):
    h = torch.relu_(self.a.forward(x))
    h = self.b.forward(h)
    h += x
    return torch.relu_(h)
)",
                              0},
                      Example{"dropout", R"(
def forward(self, x):
    h = torch.dropout(self.a.forward(x), 0.4, self.training)
    unused = torch.dropout(h, 0.5, self.training)
    h = torch.dropout_(self.b.forward(h), 0.3, self.training)
    return torch.feature_dropout(h, 0.2, self.training)
)",
                              0},
                      // In evaluation mode the written tensor is dropout's input.
                      Example{"written_dropout", R"(
def forward(self, x):
    h = self.a.forward(x)
    d = torch.dropout(h, 0.4, self.training)
    r = torch.relu_(d)
    return self.b.forward(r) + h.detach()
)",
                              1},
                      Example{"written_view", R"(
def forward(self, x):
    h = self.a.forward(x)
    v = h[:, 0:2]
    s = torch.relu_(v)
    return self.b.forward(h) + s.mean()
)",
                              1},
                      Example{"lists_and_branches", R"(
def forward(self, x):
    parts = [x]
    h = torch.relu_(self.a.forward(x))
    parts.append(h)
    if h.size(0) > 1:
        g = self.b.forward(h)
        g.mul_(0.5)
        parts.append(torch.relu_(g))
    total = torch.cat(parts, 1)
    for i in range(2):
        total = total * 1.5
    return total
)",
                              0},
                      Example{"mixed_dtypes", R"(
def forward(self, x):
    h = self.a.forward(x)
    h.add_(torch.exp(x))
    h.mul_(torch.sigmoid(x).to(7))
    return torch.relu_(self.b.forward(h))
)",
                              0}),
    [](const auto& example) { return std::string(example.param.name); });

TEST(Prepare, NamesValuesAfterModules) {
  const Module model = makeModel(
      "def forward(self, x):\n    return torch.tanh(self.b.forward(self.a.forward(x)))\n");
  const std::string text = prepareGraph(model, "forward")->toString(false);
  for (const char* name :
       {"%a_conv2d :", "%a_batch_norm :", "%b_conv2d :", "%tanh_1 :", "%a_weight :", "%self_b :"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name << " in\n" << text;
  }
}

TEST(Prepare, LeavesTheModuleAlone) {
  const Module model =
      makeModel("def forward(self, x):\n    return torch.relu_(self.a.forward(x))\n");
  const std::string before = model.get_method("forward").graph()->toString();
  prepareGraph(model, "forward");
  EXPECT_EQ(model.get_method("forward").graph()->toString(), before);
  EXPECT_THROW(prepareGraph(model, "backward"), c10::Error);
}

TEST(Prepare, TakesTheOriginalOfAnOptimisedMethod) {
  const Module model =
      makeModel("def forward(self, x):\n    return torch.relu_(self.a.forward(x))\n");
  Module optimized = ir::cloneForRewrite(model);
  ir::outlineRegion(optimized, "forward", prepareGraph(model, "forward"));
  EXPECT_EQ(countOps(*prepareGraph(optimized, "forward")->block(), "checkpoint"), 0);
  EXPECT_EQ(countOps(*prepareGraph(optimized, "forward")->block(), "batch_norm"), 1);
}

}  // namespace
}  // namespace remat
