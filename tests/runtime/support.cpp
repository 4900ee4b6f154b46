#include "tests/runtime/support.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>

#include "ir/outline.h"
#include "ir/region_order.h"
#include "passes/prepare.h"
#include "passes/rewriter.h"
#include "runtime/memory_statistics.h"
#include "runtime/runtime.h"
#include "runtime/statistics.h"
#include "runtime/tensors.h"

namespace remat::runtime::test {

void RuntimeTest::SetUp() {
  initialize();
  installMemoryStatistics();
  enableStatistics(true);
  takeStatistics();
  torch::jit::setGraphExecutorOptimize(false);
  at::manual_seed(1);
}

void RuntimeTest::TearDown() { torch::jit::setGraphExecutorOptimize(true); }

Module makeModule(const std::string& source, const Named& parameters, const Named& buffers) {
  Module module("Sample");
  for (const auto& [name, tensor] : parameters) {
    module.register_parameter(name, tensor.detach().clone().set_requires_grad(true), false);
  }
  for (const auto& [name, tensor] : buffers) {
    module.register_buffer(name, tensor.detach().clone());
  }
  module.define(source);
  return module;
}

void addNoGrad(Module& module) {
  Module guard("NoGrad");
  guard.define(R"(
def __enter__(self) -> None:
    torch.set_grad_enabled(False)

def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
    torch.set_grad_enabled(True)
)");
  module.register_module("no_grad", guard);
}

Module copyOf(const Module& module) {
  const at::NoGradGuard no_grad;
  Module copy = module.deepcopy();
  auto original = module.parameters().begin();
  for (at::Tensor parameter : copy.parameters()) {
    parameter.set_requires_grad((*original).requires_grad());
    ++original;
  }
  return copy;
}

at::Tensor randomTensor(at::IntArrayRef sizes, bool grad, at::ScalarType dtype) {
  return at::randn(sizes, at::kFloat).to(dtype).set_requires_grad(grad);
}

std::shared_ptr<torch::jit::Graph> regionOf(const Module& module,
                                            const std::vector<std::string>& keep) {
  const auto prepared = prepareGraph(module, "forward");
  const ir::RegionOrder order = ir::regionOrder(*prepared);
  std::vector<int32_t> values;
  std::vector<int32_t> dropped;
  std::vector<int32_t> regenerated;
  const auto listed = [&](const std::string& kind) {
    return std::find(keep.begin(), keep.end(), kind) != keep.end();
  };
  for (size_t i = 0; i < order.values.size(); ++i) {
    const std::string kind = order.values[i]->node()->kind().toQualString();
    if (listed(kind)) {
      values.push_back(static_cast<int32_t>(i));
    }
    if (listed("each time " + kind)) {
      dropped.push_back(static_cast<int32_t>(i));
    }
    if (listed("inside of " + kind)) {
      regenerated.push_back(static_cast<int32_t>(i));
    }
  }
  return rewriteRegion(prepared, {values, dropped, regenerated});
}

std::shared_ptr<const RegionProgram> programOf(const Module& module,
                                               const std::vector<std::string>& keep) {
  return compileRegion(*regionOf(module, keep));
}

Module optimized(const Module& module, const std::vector<std::string>& keep) {
  Module copy = ir::cloneForRewrite(copyOf(module));
  ir::outlineRegion(copy, "forward", regionOf(module, keep));
  return copy;
}

std::vector<IValue> freshInputs(const std::vector<IValue>& inputs) {
  std::vector<IValue> fresh;
  for (const IValue& input : inputs) {
    if (!input.isTensor()) {
      fresh.push_back(input);
      continue;
    }
    const at::Tensor& tensor = input.toTensor();
    fresh.emplace_back(tensor.detach().clone().set_requires_grad(tensor.requires_grad()));
  }
  return fresh;
}

Tensors tensorsIn(const IValue& value) {
  Tensors tensors;
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      forEachTensor(entry.value(), [&](const at::Tensor& t, int32_t) { tensors.push_back(t); });
    }
    return tensors;
  }
  forEachTensor(value, [&](const at::Tensor& t, int32_t) { tensors.push_back(t); });
  return tensors;
}

Tensors copies(const Tensors& tensors) {
  Tensors copied;
  for (const at::Tensor& tensor : tensors) {
    copied.push_back(tensor.defined() ? tensor.detach().clone() : at::Tensor());
  }
  return copied;
}

at::Tensor rootGradient(const at::Tensor& output) {
  const at::Tensor steps = at::arange(output.numel(), output.options().dtype(at::kFloat));
  return steps.mul(0.7).sin().reshape(output.sizes()).to(output.scalar_type());
}

StepResult step(Module& module, const std::vector<IValue>& inputs, int seed,
                const Forward& forward) {
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.mutable_grad() = at::Tensor();
  }
  const std::vector<IValue> own = freshInputs(inputs);
  at::manual_seed(seed);
  const Tensors outputs = tensorsIn(forward ? forward(own) : module.forward(own));
  StepResult result;
  result.outputs = copies(outputs);
  Tensors roots;
  Tensors gradients;
  for (const at::Tensor& output : outputs) {
    if (output.requires_grad()) {
      roots.push_back(output);
      gradients.push_back(rootGradient(output));
    }
  }
  if (!roots.empty()) {
    torch::autograd::backward(roots, gradients);
  }
  for (const at::Tensor& parameter : module.parameters()) {
    result.gradients.push_back(parameter.grad());
  }
  for (const IValue& input : own) {
    if (input.isTensor()) {
      result.gradients.push_back(input.toTensor().grad());
    }
  }
  result.gradients = copies(result.gradients);
  for (const at::Tensor& buffer : module.buffers()) {
    result.buffers.push_back(buffer.detach().clone());
  }
  result.next_draw = at::rand({8});
  // A region may have drawn there.
  for (const at::Tensor& tensor : result.outputs) {
    if (!tensor.defined() || !tensor.is_cuda()) continue;
    result.next_draw = at::cat({result.next_draw, at::rand({8}, tensor.device()).cpu()});
    break;
  }
  return result;
}

void expectSame(const Tensors& expected, const Tensors& actual, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].defined(), actual[i].defined()) << what << " " << i;
    if (!expected[i].defined()) {
      continue;
    }
    EXPECT_EQ(expected[i].scalar_type(), actual[i].scalar_type()) << what << " " << i;
    EXPECT_EQ(expected[i].strides(), actual[i].strides()) << what << " " << i;
    EXPECT_FALSE(expected[i].isnan().any().item<bool>()) << what << " " << i << " compares nothing";
    EXPECT_TRUE(at::equal(expected[i], actual[i])) << what << " " << i << "\n"
                                                   << expected[i] << "\n"
                                                   << actual[i];
  }
}

void expectSame(const StepResult& expected, const StepResult& actual, const std::string& where) {
  expectSame(expected.outputs, actual.outputs, where + " output");
  expectSame(expected.gradients, actual.gradients, where + " gradient");
  expectSame(expected.buffers, actual.buffers, where + " buffer");
  expectSame({expected.next_draw}, {actual.next_draw}, where + " next draw");
}

void expectTrainsAlike(const Module& module, const std::vector<IValue>& inputs,
                       const std::vector<std::string>& keep, int steps) {
  Module plain = copyOf(module);
  Module remat = optimized(module, keep);
  const auto update = [](const Module& trained) {
    const at::NoGradGuard no_grad;
    for (at::Tensor parameter : trained.parameters()) {
      if (parameter.grad().defined()) {
        parameter.sub_(parameter.grad(), 1e-3);
      }
    }
  };
  for (int i = 0; i < steps; ++i) {
    const StepResult expected = step(plain, inputs, i);
    const StepResult actual = step(remat, inputs, i);
    expectSame(expected, actual, "step " + std::to_string(i));
    update(plain);
    update(remat);
  }
}

int64_t replayedNodes() { return takeStatistics().replayed_nodes; }

std::string errorOf(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& error) {
    const std::string message = error.what();
    return message.empty() ? "an error without a message" : message;
  }
  return {};
}

}  // namespace remat::runtime::test
