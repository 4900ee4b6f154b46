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
#include "passes/readable_names.h"

namespace remat {

bool prepareInlined(const std::shared_ptr<torch::jit::Graph>& graph) {
  bool changed = foldConstants(graph);
  // Dropout first: in evaluation mode its result is its input, which only the explicit form shows.
  changed |= makeDropoutExplicit(graph);
  changed |= torch::jit::RemoveListMutation(graph);
  changed |= functionalize(graph);
  changed |= makeDropoutExplicit(graph);
  changed |= foldConstants(graph);
  return changed;
}

std::shared_ptr<torch::jit::Graph> prepareGraph(const torch::jit::Module& module,
                                                const std::string& method) {
  const std::string name =
      ir::isOptimized(module, method) ? ir::originalMethod(module, method) : method;
  auto graph = inlinedGraph(torch::jit::toGraphFunction(module.get_method(name).function()));
  prepareInlined(graph);
  giveReadableNames(*graph);
  graph->lint();
  return graph;
}

}  // namespace remat
