#include "tools/first_difference.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <memory>
#include <set>
#include <unordered_set>
#include <utility>

#include "ir/outline.h"
#include "passes/inline_calls.h"
#include "passes/module_state.h"
#include "passes/training_step.h"
#include "runtime/value_trace.h"

namespace remat::tools {
namespace {

using runtime::TracedValue;
using runtime::ValueTrace;

std::shared_ptr<torch::jit::Graph> graphOf(const torch::jit::Module& module,
                                           const std::string& method) {
  if (ir::isOptimized(module, method)) return ir::regionGraph(module, method);
  return inlinedGraph(torch::jit::toGraphFunction(module.get_method(method).function()));
}

/// A module that is trained step by step, each of them traced.
class TracedTraining {
 public:
  TracedTraining(const torch::jit::Module& module, std::string method,
                 const std::vector<c10::IValue>& inputs, const StepOptions& options)
      : method_(std::move(method)),
        graph_(graphOf(module, method_)),
        kind_(ir::isOptimized(module, method_) ? ValueTrace::Kind::kRegion
                                               : ValueTrace::Kind::kPlain),
        state_(module),
        step_(module, inputs, options) {
    // The first forward only shows the step what the output looks like.
    step_.run(method_, /*keep_results=*/false);
    state_.restore();
  }
  ~TracedTraining() { state_.restore(); }
  TracedTraining(const TracedTraining&) = delete;
  TracedTraining& operator=(const TracedTraining&) = delete;

  std::unique_ptr<ValueTrace> run() {
    auto trace = std::make_unique<ValueTrace>(*graph_, kind_);
    const torch::jit::Method method = step_.module().get_method(method_);
    step_.run(
        [&](const std::vector<c10::IValue>& inputs) {
          std::vector<c10::IValue> arguments{step_.module()._ivalue()};
          arguments.insert(arguments.end(), inputs.begin(), inputs.end());
          method.function().getSchema().checkAndNormalizeInputs(arguments, {});
          return trace->forward(std::move(arguments)).at(0);
        },
        /*keep_results=*/false);
    return trace;
  }

 private:
  std::string method_;
  std::shared_ptr<torch::jit::Graph> graph_;
  ValueTrace::Kind kind_;
  ModuleState state_;
  TrainingStep step_;
};

/// Without the underscore of the form in place.
std::string operatorOf(const TracedValue& value) {
  const bool in_place = !value.op.empty() && value.op.back() == '_';
  return in_place ? value.op.substr(0, value.op.size() - 1) : value.op;
}

/// `aten::gelu makes at layer1.act (model.py:41)`.
std::string makes(const TracedValue& value) {
  // Outside of any module the operator's own name stands for the path.
  const bool named = value.where.rfind(value.op, 0) == 0;
  return named ? value.op + " makes" + value.where.substr(value.op.size())
               : value.op + " makes at " + value.where;
}

/// The first of `expected` whose bits none of `actual` has. With `same_operator` only where
/// the other side computes something by the same operator: what it leaves out is no difference.
const TracedValue* firstMissing(const std::vector<TracedValue>& expected,
                                const std::vector<TracedValue>& actual, bool same_operator) {
  std::unordered_set<uint64_t> known;
  std::set<std::string> operators;
  for (const TracedValue& value : actual) {
    known.insert(value.fingerprint);
    operators.insert(operatorOf(value));
  }
  for (const TracedValue& value : expected) {
    if (known.count(value.fingerprint) != 0) continue;
    if (!same_operator || operators.count(operatorOf(value)) != 0) return &value;
  }
  return nullptr;
}

}  // namespace

std::string firstDifference(const torch::jit::Module& original, const torch::jit::Module& optimized,
                            const std::string& method, const std::vector<c10::IValue>& inputs,
                            const StepOptions& options, int steps) {
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  TracedTraining left(original, method, inputs, options);
  TracedTraining right(optimized, method, inputs, options);
  for (int step = 1; step <= steps; ++step) {
    const auto expected = left.run();
    const auto actual = right.run();
    const std::string when = step == 1 ? "" : ", in step " + std::to_string(step);
    if (const TracedValue* value =
            firstMissing(expected->values(), actual->values(), /*same_operator=*/true)) {
      return "the value that " + makes(*value) + when;
    }
    if (const TracedValue* value =
            firstMissing(expected->gradients(), actual->gradients(), /*same_operator=*/false)) {
      return "the gradient of what " + makes(*value) + when;
    }
  }
  return {};
}

}  // namespace remat::tools
