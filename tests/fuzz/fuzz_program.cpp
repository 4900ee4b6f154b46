#include "tests/fuzz/fuzz_program.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/library.h>

#include <exception>
#include <memory>
#include <string>

#include "tests/fuzz/attributes.h"
#include "tests/fuzz/ir_case.h"

namespace remat::fuzz {
namespace {

/// As TorchScript's own in C++, which knows `torch`; ours also knows `remat_fuzz`.
class Resolver : public torch::jit::Resolver {
 public:
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(
      const std::string& name, torch::jit::GraphFunction& /*function*/,
      const torch::jit::SourceRange& /*range*/) override {
    if (name == "torch") return std::make_shared<torch::jit::BuiltinModule>("aten");
    if (name == "remat_fuzz") return std::make_shared<torch::jit::BuiltinModule>(name);
    return nullptr;
  }
};

at::Tensor forgetful(const at::Tensor& x) { return x * (at::GradMode::is_enabled() ? 1.0 : 2.0); }

}  // namespace

Trial compile(const Program& program, uint64_t seed) {
  const std::string source = sourceOf(program);
  torch::jit::Module module = moduleFor(source, seed);
  module.define(source, std::make_shared<Resolver>());
  Trial trial = trialOf(std::move(module), seed);
  if (source.find("forgetful") != std::string::npos) trial.allow_ops = {"remat_fuzz::forgetful"};
  return trial;
}

Outcome runProgram(const Program& program, uint64_t seed) {
  Trial trial;
  try {
    trial = compile(program, seed);
  } catch (const std::exception& error) {
    return {Verdict::kUntrainable, std::string("doesn't compile: ") + error.what(), 0, {}};
  }
  return run(trial);
}

std::string describe(const Program& program, uint64_t seed) {
  return sourceOf(program) + "\n" + toIr(compile(program, seed));
}

void registerForgetful() {
  static torch::Library library(torch::Library::FRAGMENT, "remat_fuzz", std::nullopt, __FILE__,
                                __LINE__);
  static const bool once = [] {
    library.def("forgetful(Tensor x) -> Tensor");
    library.impl("forgetful",
                 torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, &forgetful));
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace remat::fuzz
