#include "passes/inline_calls.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <llvm/ADT/SmallVector.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

namespace remat {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::GraphFunction;
using torch::jit::InlinedCallStack;
using torch::jit::InlinedCallStackPtr;
using torch::jit::ModuleInstanceInfo;
using torch::jit::Node;
using torch::jit::Value;

/// `layers.0` for `self.layers.0`; empty for self and for what is no attribute chain.
std::string attributeChain(const Value* object) {
  std::string chain;
  while (object->node()->kind() == c10::prim::GetAttr) {
    const std::string& name = object->node()->s(c10::attr::name);
    chain = chain.empty() ? name : name + "." + chain;
    object = object->node()->input(0);
  }
  return chain;
}

std::optional<ModuleInstanceInfo> instanceOf(const Node& call) {
  if (call.kind() != c10::prim::CallMethod) return std::nullopt;
  const std::string chain = attributeChain(call.input(0));
  return ModuleInstanceInfo(call.input(0)->type()->cast<c10::ClassType>(),
                            chain.empty() ? "SELF" : chain);
}

/// The TorchScript function that `node` calls; nullptr if it calls none.
GraphFunction* calledFunction(Node& node) {
  if (node.kind() == c10::prim::CallFunction) return torch::jit::tryToGraphFunction(&node);
  if (node.kind() != c10::prim::CallMethod) return nullptr;
  const auto type = node.input(0)->type()->cast<c10::ClassType>();
  if (!type) return nullptr;
  return torch::jit::tryToGraphFunction(type->getMethod(node.s(c10::attr::name)));
}

class Inliner {
 public:
  std::shared_ptr<Graph> inlined(GraphFunction& function) {
    auto& graph = graphs_[&function];
    if (graph == nullptr) {
      function.ensure_defined();
      auto copy = function.graph()->copy();
      inlineBlock(*copy->block());
      // The recursion may have moved the map's entries.
      graphs_[&function] = copy;
      return copy;
    }
    return graph;
  }

 private:
  void inlineBlock(Block& block) {
    for (auto it = block.nodes().begin(); it != block.nodes().end();) {
      Node* node = *it++;
      for (Block* inner : node->blocks()) inlineBlock(*inner);
      if (GraphFunction* callee = calledFunction(*node)) inlineCall(*node, *callee);
    }
  }

  void inlineCall(Node& call, GraphFunction& callee) {
    const auto body = inlined(callee);
    llvm::SmallVector<Value*, 8> arguments(call.inputs().begin(), call.inputs().end());
    if (call.kind() == c10::prim::CallFunction) arguments.erase(arguments.begin());

    Node* before = call.prev();
    torch::jit::WithInsertPoint insert_before(&call);
    const std::vector<Value*> results = torch::jit::insertGraph(
        *call.owningGraph(), *body, at::ArrayRef<Value*>(arguments.data(), arguments.size()));

    CallStacks stacks{&callee, call.sourceRange(), instanceOf(call), {}};
    for (Node* node = before->next(); node != &call; node = node->next()) stacks.push(*node);

    for (size_t i = 0; i < results.size(); ++i) call.outputs()[i]->replaceAllUsesWith(results[i]);
    call.destroy();
  }

  /// Puts one call in front of the call stacks of the nodes that it brought.
  struct CallStacks {
    GraphFunction* callee;
    torch::jit::SourceRange source;
    std::optional<ModuleInstanceInfo> instance;
    std::unordered_map<InlinedCallStack*, InlinedCallStackPtr> made;

    void push(Node& node) {
      const auto inner = node.callstack();
      InlinedCallStackPtr& stack = made[inner ? inner->get() : nullptr];
      if (!stack) {
        stack = inner ? c10::make_intrusive<InlinedCallStack>(*inner, callee, source, instance)
                      : c10::make_intrusive<InlinedCallStack>(callee, source, instance);
      }
      node.setCallStack(stack);
      for (Block* block : node.blocks()) {
        for (Node* nested : block->nodes()) push(*nested);
      }
    }
  };

  std::unordered_map<GraphFunction*, std::shared_ptr<Graph>> graphs_;
};

}  // namespace

std::shared_ptr<Graph> inlinedGraph(GraphFunction& function) { return Inliner().inlined(function); }

}  // namespace remat
