// What the semantics tests load in place of libremat_runtime.so: the runtime's operators, the
// library's front door as an operator (a process per model would take most of the tests' time), and
// what the process counts.

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "passes/remat.h"
#include "runtime/memory_statistics.h"
#include "runtime/runtime.h"
#include "tools/budget.h"
#include "tools/report.h"
#include "tools/saved_inputs.h"

namespace remat::testing_library {
namespace {

using torch::jit::Stack;

/// The arguments in the types that `method` declares: what Python infers of None or of a
/// NamedTuple is not what the method asks for.
std::vector<c10::IValue> argumentsOf(const torch::jit::Method& method, const c10::IValue& inputs) {
  const auto& declared = method.function().getSchema().arguments();
  std::vector<c10::IValue> arguments;
  for (const c10::IValue& input : inputs.toTupleRef().elements()) {
    const size_t place = arguments.size() + 1;  // behind self
    TORCH_CHECK(place < declared.size(), "more inputs than ", method.name(), " takes");
    arguments.push_back(tools::typedAs(input, declared[place].type()));
  }
  return arguments;
}

/// Returns the report of `remat-opt optimize --json`, and the annotated dumps beside it.
std::string optimizeFile(const std::string& source, const std::string& target,
                         const c10::IValue& inputs, const OptimizeOptions& options) {
  const torch::jit::Module module = torch::jit::load(source);
  const OptimizeResult result =
      optimize(module, argumentsOf(module.get_method(options.method), inputs), options);
  result.module.save(target);
  llvm::json::Value report = tools::toJson({source, target, &result, ""});
  report.getAsObject()->try_emplace("before_ir", result.before_ir);
  report.getAsObject()->try_emplace("after_ir", result.after_ir);
  return tools::jsonText(std::move(report));
}

void optimizeOp(Stack& stack) {
  OptimizeOptions options;
  options.method = torch::jit::pop(stack).toStringRef();
  const c10::IValue allow_ops = torch::jit::pop(stack);
  for (const c10::IValue& op : allow_ops.toListRef()) {
    options.allow_ops.push_back(op.toStringRef());
  }
  options.budget = tools::parseBudget(torch::jit::pop(stack).toStringRef());
  const c10::IValue inputs = torch::jit::pop(stack);
  const std::string target = torch::jit::pop(stack).toStringRef();
  const std::string source = torch::jit::pop(stack).toStringRef();
  stack.emplace_back(optimizeFile(source, target, inputs, options));
}

// TORCH_LIBRARY takes no argument of type Any.
const torch::jit::RegisterOperators kOptimize({torch::jit::Operator(
    "remat_testing::optimize(str source, str target, Any inputs, str budget, str[] allow_ops, str "
    "method) -> str",
    optimizeOp, c10::AliasAnalysisKind::CONSERVATIVE)});

TORCH_LIBRARY(remat_testing, library) {
  runtime::initialize();
  runtime::installMemoryStatistics();
  runtime::enableStatistics(true);
  library.def("live_bytes() -> int", &runtime::liveBytes);
  library.def("peak_bytes() -> int", &runtime::peakBytes);
  library.def("reset_peak() -> ()", &runtime::resetPeak);
  // Nodes that were recomputed since the last call, over all threads.
  library.def("replayed_nodes() -> int", [] { return runtime::takeStatistics().replayed_nodes; });
}

}  // namespace
}  // namespace remat::testing_library
