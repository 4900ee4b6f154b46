#include "passes/prepare.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include "ir/outline.h"
#include "passes/explicit_dropout.h"
#include "passes/fold_constants.h"
#include "passes/functionalize.h"
#include "passes/inline_calls.h"
#include "passes/list_versions.h"
#include "passes/readable_names.h"

namespace remat {

bool prepareInlined(const std::shared_ptr<torch::jit::Graph>& graph, bool on_cpu) {
  bool changed = foldConstants(graph);
  // Before dropout_mask comes in, which LibTorch's alias analysis takes for a writer of everything.
  changed |= torch::jit::RemoveListMutation(graph);
  changed |= makeListVersions(*graph);
  // Before in-place ops: in evaluation mode a dropout's result is its input, which only this form
  // shows.
  changed |= makeDropoutExplicit(graph, on_cpu);
  changed |= functionalize(graph);
  changed |= makeDropoutExplicit(graph, on_cpu);
  changed |= foldConstants(graph);
  return changed;
}

std::shared_ptr<torch::jit::Graph> prepareGraph(const torch::jit::Module& module,
                                                const std::string& method, bool on_cpu) {
  const std::string name =
      ir::isOptimized(module, method) ? ir::originalMethod(module, method) : method;
  auto graph = inlinedGraph(torch::jit::toGraphFunction(module.get_method(name).function()));
  prepareInlined(graph, on_cpu);
  giveReadableNames(*graph);
  graph->lint();
  return graph;
}

}  // namespace remat
