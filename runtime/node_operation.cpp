#include "runtime/node_operation.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace remat::runtime {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

/// What nodes read from outside of themselves, in the order of first use.
class CaptureCollector {
 public:
  void add(Node* node) {
    for (Value* input : node->inputs()) {
      use(input);
    }
    for (Block* block : node->blocks()) {
      for (Value* input : block->inputs()) {
        inside_.insert(input);
      }
      for (Node* inner : block->nodes()) {
        add(inner);
      }
      for (Value* output : block->outputs()) {
        use(output);
      }
    }
    for (Value* output : node->outputs()) {
      inside_.insert(output);
    }
  }

  std::vector<Value*> take() { return std::move(inputs_); }

 private:
  void use(Value* value) {
    if (inside_.count(value) == 0 && seen_.insert(value).second) {
      inputs_.push_back(value);
    }
  }

  std::unordered_set<Value*> inside_;
  std::unordered_set<Value*> seen_;
  std::vector<Value*> inputs_;
};

bool isUsedOutside(const Value& value, const std::unordered_set<Node*>& group) {
  return std::any_of(value.uses().begin(), value.uses().end(),
                     [&](const torch::jit::Use& use) { return group.count(use.user) == 0; });
}

}  // namespace

bool hasOperation(const ir::OrderedNode& ordered) {
  const Node& node = *ordered.node;
  if (ordered.form != ir::NodeForm::kOperator || node.maybeOperator() == nullptr ||
      node.kind().is_prim() || node.kind() == c10::aten::warn) {
    return false;
  }
  const auto* schema = node.maybeSchema();
  return schema != nullptr && !schema->is_vararg() && !schema->is_varret();
}

std::shared_ptr<torch::jit::Operation> Operations::of(const Node& node) {
  const torch::jit::Operator& op = node.getOperator();
  if (!op.isC10Op()) {  // may be made for this very node
    return std::make_shared<torch::jit::Operation>(op.getOperation(&node));
  }
  auto& known = known_[&op];
  if (known == nullptr) known = std::make_shared<torch::jit::Operation>(op.getOperation(&node));
  return known;
}

InterpretedNodes interpretedNodes(const std::vector<Node*>& nodes) {
  CaptureCollector collector;
  for (Node* node : nodes) collector.add(node);
  InterpretedNodes result{std::make_shared<Graph>(), collector.take(), {}};
  std::unordered_map<Value*, Value*> mapped;
  for (Value* input : result.inputs) mapped[input] = result.graph->addInput()->copyMetadata(input);
  const std::unordered_set<Node*> group(nodes.begin(), nodes.end());
  for (Node* node : nodes) {
    Node* clone = result.graph->insertNode(
        result.graph->createClone(node, [&](Value* v) { return mapped.at(v); }));
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      Value* output = node->outputs()[i];
      mapped[output] = clone->outputs()[i];
      if (nodes.size() > 1 && !isUsedOutside(*output, group)) continue;
      result.graph->registerOutput(clone->outputs()[i]);
      result.outputs.push_back(output);
    }
  }
  return result;
}

}  // namespace remat::runtime
