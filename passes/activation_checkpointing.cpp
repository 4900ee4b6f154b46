#include "passes/activation_checkpointing.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/profiling_record.h>

#include <algorithm>

#include "ir/names.h"
#include "ir/outline.h"
#include "passes/internals.h"
#include "passes/marks.h"
#include "passes/planner.h"
#include "passes/prepare.h"
#include "passes/readable_names.h"
#include "passes/rewriter.h"
#include "passes/typed_arguments.h"
#include "runtime/runtime.h"

namespace remat {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool takesSelf(const Graph& graph) {
  return !graph.inputs().empty() && graph.inputs()[0]->type()->is_module();
}

bool callsRegions(const torch::jit::Block& block) {
  return std::any_of(block.nodes().begin(), block.nodes().end(), [](const Node* node) {
    const std::string op = node->kind().toQualString();
    return op == ir::kRegion || op == ir::kCheckpoint ||
           std::any_of(node->blocks().begin(), node->blocks().end(),
                       [](const torch::jit::Block* inner) { return callsRegions(*inner); });
  });
}

/// TorchScript's autocast says its casts in the graph, for other operators than eager's; the
/// dispatcher casts each operator as in eager anyway.
void dropAutocastNodes(torch::jit::Block& block) {
  for (auto it = block.nodes().begin(); it != block.nodes().end();) {
    Node* node = *it++;
    for (torch::jit::Block* inner : node->blocks()) dropAutocastNodes(*inner);
    const std::string op = node->kind().toQualString();
    if (op != "aten::_autocast_to_reduced_precision" && op != "aten::_autocast_to_full_precision") {
      continue;
    }
    node->output()->replaceAllUsesWith(node->input(0));
    node->destroy();
  }
}

/// A copy in the form that everything else works on.
std::shared_ptr<Graph> preparedCopy(Graph& graph, bool on_cpu) {
  std::shared_ptr<Graph> prepared = graph.copy();
  // An executor leaves its profiling in what it shows to passes.
  torch::jit::ProfilingRecord::removeProfilingNodes(prepared->block());
  dropAutocastNodes(*prepared->block());
  prepareInlined(prepared, on_cpu);
  giveReadableNames(*prepared);
  prepared->lint();
  return prepared;
}

/// The first call of a method or function that is not inlined; null where there is none.
const Node* findCall(const torch::jit::Block& block) {
  for (const Node* node : block.nodes()) {
    if (node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction)
      return node;
    for (const torch::jit::Block* inner : node->blocks()) {
      if (const Node* found = findCall(*inner)) return found;
    }
  }
  return nullptr;
}

/// Throws RematError where `graph`, or what is given for its inputs, is nothing to work on.
void checkGraph(const std::shared_ptr<Graph>& graph, const std::vector<c10::IValue>& arguments) {
  if (graph == nullptr) throw RematError("there is no graph: the pointer is null");
  if (const Node* call = findCall(*graph->block())) {
    throw RematError("the graph calls " +
                     (call->hasAttribute(c10::attr::name) ? "the method " + call->s(c10::attr::name)
                                                          : std::string("a function")) +
                     ", which is not inlined: run torch::jit::Inline on it before");
  }
  if (arguments.empty()) return;
  if (arguments.size() != graph->inputs().size()) {
    throw RematError("the graph takes " + std::to_string(graph->inputs().size()) +
                     " arguments, self included, and " + std::to_string(arguments.size()) +
                     " were given");
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Value* input = graph->inputs()[i];
    const bool object = input->type()->kind() == c10::TypeKind::ClassType;
    // Of sizes the graph may say others; of classes, one of the same name.
    const bool fits = object ? arguments[i].isObject()
                             : arguments[i].type()->isSubtypeOf(*c10::unshapedType(input->type()));
    if (fits) continue;
    throw RematError("argument " + std::to_string(i) + ", for %" + input->debugName() + ", is a " +
                     arguments[i].type()->repr_str() + ", and the graph takes a " +
                     c10::unshapedType(input->type())->repr_str() + " there");
  }
}

/// Everything in `graph` gives way to a call of `region`.
void replaceByRegion(Graph& graph, const std::shared_ptr<Graph>& region) {
  std::vector<c10::TypePtr> types;
  for (const Value* output : graph.outputs()) types.push_back(output->type());
  graph.block()->removeAllOutputs();
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) it.destroyCurrent();
  Node* node = graph.create(c10::Symbol::fromQualString(ir::kRegion), graph.inputs(), types.size());
  node->g_(c10::attr::Subgraph, region);
  graph.appendNode(node);
  for (size_t i = 0; i < types.size(); ++i) {
    node->outputs()[i]->setType(types[i]);
    graph.registerOutput(node->outputs()[i]);
  }
  graph.lint();
}

}  // namespace

CheckpointingResult ActivationCheckpointing(const std::shared_ptr<Graph>& graph,
                                            const OptimizeOptions& options,
                                            const std::vector<c10::IValue>& arguments) {
  runtime::initialize();
  checkGraph(graph, arguments);
  CheckpointingResult result;
  if (callsRegions(*graph->block())) {
    result.reason_unchanged =
        "it is checkpointed already, by a pass that ran before: the budget of that one holds";
    return result;
  }
  if (graph->outputs().empty()) {
    result.reason_unchanged = "it returns nothing, so there is nothing to train";
    return result;
  }
  const bool with_self = takesSelf(*graph);
  std::vector<c10::IValue> inputs = arguments.empty() ? typedArguments(*graph) : arguments;
  const torch::jit::Module module =
      with_self ? inputs.at(0).toModule() : torch::jit::Module("RematNoModule");
  if (with_self) inputs.erase(inputs.begin());
  const bool on_cpu = c10::Device(options.target()).is_cpu();
  const Analysis analysis =
      analyzeGraph(preparedCopy(*graph, on_cpu), module, with_self, inputs, options);
  result.original_peak = analysis.original_peak;
  result.remarks = analysis.remarks;
  result.profile = analysis.profile;
  const GraphPlan planned = planGraph(analysis, options);
  result.plan = planned.plan;
  result.reason_unchanged = planned.reason_unchanged;
  if (!result.reason_unchanged.empty()) return result;
  const PlanningInput input = planningInput(analysis, options);
  replaceByRegion(*graph, rewriteRegion(analysis.graph, {marksOf(input, result.plan),
                                                         droppedValues(input, result.plan),
                                                         regeneratedValues(input, result.plan)}));
  result.changed = true;
  return result;
}

std::function<void(std::shared_ptr<Graph>&)> makePass(const OptimizeOptions& options,
                                                      const std::vector<c10::IValue>& arguments) {
  return [options, arguments](std::shared_ptr<Graph>& graph) {
    ActivationCheckpointing(graph, options, arguments);
  };
}

}  // namespace remat
