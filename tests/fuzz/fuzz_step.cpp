#include "tests/fuzz/fuzz_step.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "passes/value_tensors.h"
#include "tests/fuzz/attributes.h"
#include "tests/runtime/support.h"

namespace remat::fuzz {
namespace {

using runtime::test::copies;
using runtime::test::rootGradient;
using runtime::test::Tensors;

/// The outputs that need gradients, and a gradient for each.
struct Roots {
  explicit Roots(const Tensors& outputs, size_t most = SIZE_MAX) {
    for (const at::Tensor& output : outputs) {
      if (!output.requires_grad() || tensors.size() >= most) continue;
      tensors.push_back(output);
      gradients.push_back(rootGradient(output));
    }
  }
  void backward(bool retain = false) const {
    if (!tensors.empty()) torch::autograd::backward(tensors, gradients, retain);
  }
  Tensors tensors;
  Tensors gradients;
};

Tensors leavesOf(const torch::jit::Module& module, const at::Tensor& x) {
  Tensors leaves;
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) leaves.push_back(parameter);
  }
  if (x.requires_grad()) leaves.push_back(x);
  return leaves;
}

void add(const Tensors& leaves, const Tensors& gradients) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (gradients[i].defined()) leaves[i].mutable_grad() = gradients[i].detach();
  }
}

/// Gradients of some leaves, chosen by the seed.
void gradient(const Roots& roots, const Tensors& all, uint64_t seed) {
  Tensors leaves;
  for (size_t i = 0; i < all.size(); ++i) {
    if (((seed >> (i % 8)) & 1U) != 0 || i + 1 == all.size()) leaves.push_back(all[i]);
  }
  if (roots.tensors.empty() || leaves.empty()) return;
  add(leaves, torch::autograd::grad(roots.tensors, leaves, roots.gradients,
                                    /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                    /*allow_unused=*/true));
}

void secondOrder(const Roots& roots, const Tensors& leaves) {
  if (roots.tensors.empty() || leaves.empty()) return;
  const Tensors first = torch::autograd::grad(roots.tensors, leaves, roots.gradients,
                                              /*retain_graph=*/true, /*create_graph=*/true,
                                              /*allow_unused=*/true);
  at::Tensor penalty;
  for (const at::Tensor& one : first) {
    if (!one.defined() || !one.requires_grad()) continue;
    penalty = penalty.defined() ? penalty + one.square().sum() : one.square().sum();
  }
  add(leaves, first);
  if (penalty.defined()) penalty.backward();
}

void inOtherThread(const Roots& roots) {
  std::exception_ptr error;
  std::thread thread([&] {
    try {
      roots.backward();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

bool sameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

std::string difference(const at::Tensor& a, const at::Tensor& b, bool exact) {
  if (!a.defined() && !b.defined()) return {};
  if (a.defined() != b.defined()) return b.defined() ? "is defined" : "is undefined";
  if (a.scalar_type() != b.scalar_type()) return "has another dtype";
  if (a.sizes() != b.sizes()) return "has another shape";
  if (exact && a.strides() != b.strides()) return "has other strides";
  if (a.numel() == 0 || sameBits(a, b)) return {};
  const at::Tensor left = a.to(at::kDouble);
  const double apart = (left - b.to(at::kDouble)).abs().max().item<double>();
  const double largest = std::max(left.abs().max().item<double>(), 1e-3);
  constexpr double kTolerance = 1e-3;
  if (!exact && apart <= kTolerance * largest) return {};
  return "differs by " + std::to_string(apart) + " of " + std::to_string(largest);
}

std::string difference(const Tensors& a, const Tensors& b, const char* what, bool exact) {
  if (a.size() != b.size()) return std::string("another number of ") + what + "s";
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string text = difference(a[i], b[i], exact);
    if (!text.empty()) return std::string(what) + " " + std::to_string(i) + " " + text;
  }
  return {};
}

}  // namespace

Model eagerly(const torch::jit::Module& module) {
  const auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  const auto code = std::make_shared<torch::jit::Code>(graph, "forward");
  const auto forward = [module, code](const at::Tensor& x) {
    torch::jit::Stack stack{module._ivalue(), x};
    torch::jit::InterpreterState(*code).run(stack);
    return stack.back();
  };
  return {module, forward};
}

Model asScript(const torch::jit::Module& module) {
  const torch::jit::Method method = module.get_method("forward");
  return {module, [method](const at::Tensor& x) { return method({x}); }};
}

at::Tensor inputOf(const Trial& trial, int call) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(trial.seed * 10 + call);
  const at::Tensor x = at::empty({kRows, kColumns}).normal_(0, 1, generator);
  return x.set_requires_grad(trial.input_grad);
}

Step takeStep(const Model& model, const Trial& trial, int call) {
  const torch::jit::Module& module = model.module;
  for (const at::Tensor& parameter : module.parameters()) parameter.mutable_grad().reset();
  const at::Tensor x = inputOf(trial, call);
  at::manual_seed(trial.seed + call);
  Step step;
  if (trial.variant == Variant::kDropped) model.forward(x);
  Tensors outputs = tensorsOf(model.forward(x));
  step.outputs = copies(outputs);
  const Roots roots(outputs, trial.variant == Variant::kFirstOutput ? 1 : SIZE_MAX);
  outputs.clear();
  switch (trial.variant) {
    case Variant::kRetainGraph:
      roots.backward(/*retain=*/true);
      roots.backward();
      break;
    case Variant::kGradient:
      gradient(roots, leavesOf(module, x), trial.seed);
      break;
    case Variant::kTwoForwards: {
      const Roots second(tensorsOf(model.forward(x)));
      roots.backward();
      second.backward();
      break;
    }
    case Variant::kSecondOrder:
      secondOrder(roots, leavesOf(module, x));
      break;
    case Variant::kOtherThread:
      inOtherThread(roots);
      break;
    case Variant::kPlain:
    case Variant::kDropped:
    case Variant::kFirstOutput:
    case Variant::kCount:
      roots.backward();
      break;
  }
  for (const at::Tensor& parameter : module.parameters())
    step.gradients.push_back(parameter.grad());
  step.gradients.push_back(x.grad());
  step.gradients = copies(step.gradients);
  for (const at::Tensor& buffer : module.buffers()) step.buffers.push_back(buffer.detach().clone());
  step.input = copies({x});
  step.next_draw = {at::rand({4})};
  return step;
}

void update(const torch::jit::Module& module) {
  const at::NoGradGuard no_grad;
  constexpr double kRate = 1e-3;
  constexpr double kLargest = 1.0;  // keeps values from growing without end
  for (at::Tensor parameter : module.parameters()) {
    if (parameter.grad().defined())
      parameter.sub_(parameter.grad().clamp(-kLargest, kLargest), kRate);
  }
}

bool finite(const std::vector<Step>& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const Step& step) {
    for (const Tensors* tensors : {&step.outputs, &step.gradients, &step.buffers}) {
      for (const at::Tensor& tensor : *tensors) {
        if (tensor.defined() && !tensor.isfinite().all().item<bool>()) return false;
      }
    }
    return true;
  });
}

std::string firstDifference(const std::vector<Step>& expected, const std::vector<Step>& actual,
                            bool exact) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const Step& a = expected[i];
    const Step& b = actual[i];
    for (const std::string& text :
         {difference(a.outputs, b.outputs, "output", exact),
          difference(a.gradients, b.gradients, "gradient", exact),
          difference(a.buffers, b.buffers, "buffer", exact),
          difference(a.input, b.input, "input", exact),
          difference(a.next_draw, b.next_draw, "next draw", /*exact=*/true)}) {
      if (!text.empty()) return "call " + std::to_string(i + 1) + ": " + text;
    }
  }
  return {};
}

}  // namespace remat::fuzz
