#include "passes/register_pass.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/pass_manager.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "passes/activation_checkpointing.h"
#include "passes/autocast_off.h"
#include "passes/check_options.h"
#include "passes/module_state.h"
#include "passes/training_step.h"
#include "passes/value_tensors.h"

namespace remat {
namespace {

/// Calls after which an executor has compiled: one is profiled, the next one compiles.
constexpr int kCalls = 3;

/// What this thread warms up: the method's arguments, the module first, defaults filled in.
struct WarmUp {
  torch::jit::Module module;
  std::vector<c10::IValue> arguments;
};
thread_local const WarmUp* t_warm_up = nullptr;

class Pass {
 public:
  explicit Pass(OptimizeOptions options) : options_(std::move(options)) {}

  void operator()(const std::shared_ptr<torch::jit::Graph>& graph) {
    // What a recorded step compiles in its turn is no graph to plan for.
    if (running_) return;
    running_ = true;
    const auto done = c10::make_scope_exit([&] { running_ = false; });
    if (graph->inputs().empty() || !graph->inputs()[0]->type()->is_module()) {
      say("a part of a method, such as the forward half of a differentiable graph, is left as it "
          "is: call remat::warmUp before training, so that the method is seen whole, and once more "
          "inside of the autocast scope if training has one");
      return;
    }
    try {
      checkpoint(graph);
    } catch (const StepError& error) {
      say("a method is left as it is: " + std::string(error.what()));
    }
  }

 private:
  void checkpoint(const std::shared_ptr<torch::jit::Graph>& graph) {
    const std::vector<c10::IValue> arguments =
        isWarmedUp(*graph) ? t_warm_up->arguments : std::vector<c10::IValue>();
    OptimizeOptions options = options_;
    const AutocastOff autocast(c10::Device(options.step.device).type());
    if (autocast.wasEnabled()) {
      const auto dtype = at::autocast::get_autocast_dtype(c10::Device(options.step.device).type());
      options.step.autocast = dtype == at::kHalf ? "float16" : "bfloat16";
    }
    const CheckpointingResult result = ActivationCheckpointing(graph, options, arguments);
    if (!result.changed) say("a method is left as it is: " + result.reason_unchanged);
  }

  static bool isWarmedUp(const torch::jit::Graph& graph) {
    return t_warm_up != nullptr && graph.inputs().size() == t_warm_up->arguments.size() &&
           graph.inputs()[0]->type()->isSubtypeOf(*t_warm_up->module.type());
  }

  void say(const std::string& text) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!said_.insert(text).second) return;
    }
    if (options_.progress) {
      options_.progress(text);
    } else {
      std::fprintf(stderr, "remat: %s\n", text.c_str());
    }
  }

  static thread_local bool running_;
  OptimizeOptions options_;
  std::mutex mutex_;
  std::set<std::string> said_;
};

thread_local bool Pass::running_ = false;

}  // namespace

unsigned registerPass(const OptimizeOptions& options) {
  checkOptions(options);
  const auto pass = std::make_shared<Pass>(options);
  return torch::jit::registerPrePass(
      [pass](std::shared_ptr<torch::jit::Graph>& graph) { (*pass)(graph); });
}

RegisteredPass::~RegisteredPass() { torch::jit::clearPrePass(name_); }

void warmUp(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
            const std::string& method) {
  const WarmUp* const outer = t_warm_up;
  WarmUp present{module, {module._ivalue()}};
  present.arguments.insert(present.arguments.end(), inputs.begin(), inputs.end());
  module.get_method(method).function().getSchema().checkAndNormalizeInputs(present.arguments, {});
  c10::Device device(c10::kCPU);
  for (const at::Tensor& tensor : module.parameters()) device = tensor.device();
  ModuleState state(module);
  const RandomStateScope random_state(device);
  const auto restore = c10::make_scope_exit([&] {
    t_warm_up = outer;
    state.restore();
  });
  t_warm_up = &present;
  const at::NoGradGuard no_grad;
  for (int call = 0; call < kCalls; ++call) {
    module.get_method(method)(cloneValues(inputs));
    state.restore();
  }
}

}  // namespace remat
