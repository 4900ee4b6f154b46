#include "ir/region_order.h"

#include <torch/csrc/jit/ir/ir.h>

namespace remat::ir {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

/// Control transfers that only the interpreter can make: their bodies are not part of the region.
bool isOpaque(const Node& node) {
  switch (node.kind()) {
    case c10::prim::CallFunction:
    case c10::prim::CallMethod:
    case c10::prim::awaitable:
    case c10::prim::awaitable_wait:
    case c10::prim::fork:
    case c10::prim::rpc_async:
    case c10::prim::rpc_remote:
    case c10::prim::rpc_sync:
    case c10::aten::wait:
      return true;
    default:
      return !node.blocks().empty();
  }
}

NodeForm formOf(const Node& node) {
  if (node.kind() == c10::prim::Constant) return NodeForm::kConstant;
  if (node.kind() == c10::prim::If) return NodeForm::kBranch;
  return isOpaque(node) ? NodeForm::kOpaque : NodeForm::kOperator;
}

class Numbering {
 public:
  explicit Numbering(torch::jit::Graph& graph) {
    for (Value* input : graph.inputs()) addValue(input);
    addBlock(*graph.block());
  }

  RegionOrder take() { return std::move(order_); }

 private:
  void addBlock(Block& block) {
    int open_withs = 0;
    for (Node* node : block.nodes()) {
      const bool enters = node->kind() == c10::prim::Enter;
      if (open_withs > 0) {
        addNode(node, NodeForm::kInside);
      } else if (enters) {
        addNode(node, NodeForm::kOpaque);
      } else {
        addOutermost(node);
      }
      if (enters) ++open_withs;
      if (node->kind() == c10::prim::Exit && open_withs > 0) --open_withs;
    }
  }

  void addOutermost(Node* node) {
    const NodeForm form = formOf(*node);
    addNode(node, form);
    if (form != NodeForm::kBranch) return;
    for (Block* block : node->blocks()) addBlock(*block);
  }

  void addNode(Node* node, NodeForm form) {
    order_.node_ids.emplace(node, static_cast<int32_t>(order_.nodes.size()));
    order_.nodes.push_back({node, form});
    for (Value* output : node->outputs()) addValue(output);
  }

  void addValue(Value* value) {
    order_.value_ids.emplace(value, static_cast<int32_t>(order_.values.size()));
    order_.values.push_back(value);
  }

  RegionOrder order_;
};

}  // namespace

RegionOrder regionOrder(torch::jit::Graph& graph) { return Numbering(graph).take(); }

}  // namespace remat::ir
