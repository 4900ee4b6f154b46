#include "passes/anchor_draws.h"

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallVector.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <cstddef>

#include "ir/names.h"
#include "ir/replay_safety.h"

namespace remat {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

using Nodes = llvm::SmallVector<Node*, 0>;

void collect(Block& block, Nodes& nodes) {
  for (Node* node : block.nodes()) {
    nodes.push_back(node);
    for (Block* inner : node->blocks()) collect(*inner, nodes);
  }
}

Nodes nodesOf(Graph& graph) {
  Nodes nodes;
  collect(*graph.block(), nodes);
  return nodes;
}

/// What is left of `graph` once nobody finds more to remove.
llvm::DenseSet<const Node*> remainders(const std::shared_ptr<Graph>& graph) {
  Nodes nodes;
  size_t before = 0;
  do {
    before = nodes.size();
    torch::jit::EliminateDeadCode(graph);
    nodes = nodesOf(*graph);
  } while (nodes.size() != before);
  return {nodes.begin(), nodes.end()};
}

}  // namespace

void anchorDraws(Graph& region) {
  const Nodes nodes = nodesOf(region);
  if (std::none_of(nodes.begin(), nodes.end(),
                   [](const Node* node) { return ir::isRandom(*node); }))
    return;
  const auto copy = region.copy();
  const Nodes copies = nodesOf(*copy);
  const auto left = remainders(copy);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (left.contains(copies[i]) || !ir::isRandom(*nodes[i])) continue;
    for (Value* output : nodes[i]->outputs()) {
      if (output->type()->kind() != c10::TypeKind::TensorType) continue;
      Node* use = region.create(c10::Symbol::fromQualString(ir::kUse), {output}, /*num_outputs=*/0);
      use->insertAfter(nodes[i]);
      use->copyMetadata(nodes[i]);
      break;
    }
  }
}

}  // namespace remat
