// What the Python package calls: the library's front door as operators. A ScriptModule passes as
// Any; options, results and errors pass as JSON.

#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/annotations.h"
#include "ir/json_text.h"
#include "ir/outline.h"
#include "passes/autocast_off.h"
#include "passes/graph_hash.h"
#include "passes/prepare.h"
#include "passes/remat.h"
#include "runtime/python/error_record.h"
#include "runtime/python/module_twin.h"
#include "runtime/python/progress.h"
#include "runtime/python/request.h"
#include "runtime/runtime.h"
#include "tools/curve.h"
#include "tools/report.h"
#include "tools/saved_inputs.h"
#include "tools/version.h"

namespace remat::python {
namespace {

using torch::jit::Module;
using torch::jit::Stack;

/// The arguments in the types that `method` declares: what is inferred of a Python None or an empty
/// list is not what it asks for.
std::vector<c10::IValue> argumentsOf(const Module& module, const std::string& method,
                                     const c10::IValue& inputs) {
  const auto target = module.find_method(method);
  if (!target) throw RematError("the model has no method " + method);
  const auto& declared = target->function().getSchema().arguments();
  std::vector<c10::IValue> arguments;
  for (const c10::IValue& input : inputs.toTupleRef().elements()) {
    const size_t place = arguments.size() + 1;  // behind self
    TORCH_CHECK(place < declared.size(), "more inputs than ", method, " takes");
    arguments.push_back(tools::typedAs(input, declared[place].type()));
  }
  return arguments;
}

std::string text(llvm::json::Object object) {
  return tools::jsonText(llvm::json::Value(std::move(object)));
}

/// The plan's texts travel beside the report.
llvm::json::Object describe(OptimizeResult& result) {
  result.saved_plan.tool_version = tools::kToolVersion;
  result.annotations.tool_version = tools::kToolVersion;
  llvm::json::Object object = tools::toJson({"", "", &result, ""});
  object.erase("model");
  object.erase("output");
  object["method"] = result.annotations.method;
  object["inputs"] = ir::utf8Text(result.annotations.inputs);
  object["loss"] = result.annotations.loss;
  object["plan_hash"] = result.annotations.plan_hash;
  object["plan"] = ir::utf8Text(toJson(result.saved_plan));
  object["profile"] = ir::utf8Text(ir::toJson(result.profile));
  object["annotations"] = ir::utf8Text(ir::toJson(result.annotations));
  object["before_ir"] = ir::utf8Text(result.before_ir);
  object["after_ir"] = ir::utf8Text(result.changed ? result.after_ir : result.before_ir);
  return object;
}

/// What both of the following begin with: a step of the twin runs under what its options say, and
/// not under the caller's autocast or inference mode.
struct Work {
  Work(const Module& module, const c10::IValue& inputs, const std::string& options_json)
      : request(requestFromJson(options_json)),
        autocast_off(c10::Device(request.options.step.device).type()),
        twin(detachedTwin(module)),
        arguments(argumentsOf(twin, request.options.method, inputs)) {
    request.options.progress = currentProgress();
  }

  Request request;
  AutocastOff autocast_off;
  c10::InferenceMode no_inference{false};
  Module twin;
  std::vector<c10::IValue> arguments;
};

c10::IValue optimizeModule(const Module& module, const c10::IValue& inputs,
                           const std::string& options_json) {
  const Work work(module, inputs, options_json);
  const OptimizeOptions& options = work.request.options;
  OptimizeResult result = optimize(work.twin, work.arguments, options);
  takeAttributes(result.module, sharingTwin(module));
  // verify holds a file to its budget; as low as reachable is none.
  if (options.budget.kind == Budget::Kind::kMinimum) result.annotations.budget = 0;
  return c10::ivalue::Tuple::create({result.module._ivalue(), text(describe(result))});
}

c10::IValue planModule(const Module& module, const c10::IValue& inputs,
                       const std::string& options_json) {
  const Work work(module, inputs, options_json);
  const OptimizeOptions& options = work.request.options;
  const std::vector<Budget>& budgets = work.request.budgets;
  const Analysis analysis = analyze(work.twin, work.arguments, options);
  const bool all = budgets.empty();
  const tools::Curve curve =
      tools::makeCurve(analysis, all ? tools::defaultBudgets() : budgets, all, options);
  llvm::json::Object object = tools::toJson(curve);
  object["remarks"] = tools::remarksJson(analysis.remarks);
  return text(std::move(object));
}

/// What optimizeModule gives where there is nothing to gain, and the hash of the graph that plans
/// of it are for. Runs nothing.
c10::IValue leaveModule(const Module& module, const c10::IValue& /*inputs*/,
                        const std::string& options_json) {
  const Request request = requestFromJson(options_json);
  const OptimizeOptions& options = request.options;
  if (!module.find_method(options.method)) {
    throw RematError("the model has no method " + options.method);
  }
  const bool on_cpu = c10::Device(options.target()).is_cpu();
  const std::string hash = graphHash(*prepareGraph(module, options.method, on_cpu));
  return c10::ivalue::Tuple::create(
      {sharingTwin(module)._ivalue(), text(llvm::json::Object{{"graph_hash", hash}})});
}

/// An operator `(Any module, Any inputs, str options) -> Any` that gives what `work` gives, or the
/// record of its error.
template <typename Work>
torch::jit::Operation operation(const Work& work) {
  return [work](Stack& stack) {
    const std::string options = torch::jit::pop(stack).toStringRef();
    const c10::IValue inputs = torch::jit::pop(stack);
    const c10::IValue module = torch::jit::pop(stack);
    try {
      if (!module.isModule()) throw std::invalid_argument("a module is needed");
      stack.push_back(work(module.toModule(), inputs, options));
    } catch (...) {
      stack.emplace_back(errorRecord(std::current_exception()));
    }
  };
}

const bool kRuntime = [] {
  runtime::initialize();
  return true;
}();

const torch::jit::RegisterOperators kOperators({
    torch::jit::Operator("remat::_optimize(Any module, Any inputs, str options) -> Any",
                         operation(optimizeModule), c10::AliasAnalysisKind::CONSERVATIVE),
    torch::jit::Operator("remat::_plan(Any module, Any inputs, str options) -> Any",
                         operation(planModule), c10::AliasAnalysisKind::CONSERVATIVE),
    torch::jit::Operator("remat::_leave(Any module, Any inputs, str options) -> Any",
                         operation(leaveModule), c10::AliasAnalysisKind::CONSERVATIVE),
});

}  // namespace
}  // namespace remat::python
