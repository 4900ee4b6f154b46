#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace torch::jit {
struct Block;
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace remat::ir {

/// How the runtime executes one node of a region.
enum class NodeForm : uint8_t {
  kOperator,  ///< one operator call
  kConstant,  ///< prim::Constant: part of the program, never an event
  kBranch,    ///< prim::If: its blocks' nodes are nodes of the region, in the same frame
  kOpaque,    ///< a loop, a `with` statement and everything inside it, …: run whole by the
              ///< interpreter, never replayed, its outputs are kept
  kInside,    ///< belongs to the opaque `with` statement before it
};

struct OrderedNode {
  torch::jit::Node* node;
  NodeForm form;
};

/// The one numbering of a region's nodes and values that runtime, profile, legality and rewriting
/// share.
///
/// Nodes: pre-order, entering the blocks of prim::If (true block first) and of nothing else; the
/// nodes from `prim::Enter` to its `prim::Exit` are one opaque node (the Enter), the others are
/// kInside. Values: inputs of the outermost block, then the outputs of the nodes in that order.
struct RegionOrder {
  std::vector<OrderedNode> nodes;
  std::vector<torch::jit::Value*> values;
  std::unordered_map<const torch::jit::Value*, int32_t> value_ids;
  std::unordered_map<const torch::jit::Node*, int32_t> node_ids;
};

/// Stale as soon as the graph changes.
RegionOrder regionOrder(torch::jit::Graph& graph);

}  // namespace remat::ir
