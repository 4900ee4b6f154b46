#include "passes/inline_calls.h"

#include <llvm/ADT/SmallVector.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

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
  for (; object->node()->kind() == c10::prim::GetAttr; object = object->node()->input(0)) {
    if (!chain.empty()) chain.insert(0, ".");
    chain.insert(0, object->node()->s(c10::attr::name));
  }
  return chain;
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
    if (call.kind() == c10::prim::CallFunction) call.removeInput(0);
    Node* before = call.prev();
    Node* after = call.next();
    const auto source = call.sourceRange();
    const WholeChain whole_chain(call);
    torch::jit::inlineCallTo(&call, &callee, body.get());
    completeCallStacks(before->next(), after, callee, source);
  }

  /// LibTorch takes a callee's instance name from the GetAttr node that made the object: for as
  /// long as this lives, the object comes from a single GetAttr that is named like the whole chain.
  class WholeChain {
   public:
    explicit WholeChain(Node& call) {
      if (call.kind() != c10::prim::CallMethod) return;
      object_ = call.input(0);
      const std::string chain = attributeChain(object_);
      if (chain.empty()) return;
      Graph& graph = *call.owningGraph();
      stand_in_ = graph.create(c10::prim::GetAttr, {object_})->insertBefore(&call);
      stand_in_->s_(c10::attr::name, chain);
      stand_in_->output()->setType(object_->type());
      call.replaceInput(0, stand_in_->output());
    }
    ~WholeChain() {
      if (stand_in_ == nullptr) return;
      stand_in_->output()->replaceAllUsesWith(object_);
      stand_in_->destroy();
    }
    WholeChain(const WholeChain&) = delete;
    WholeChain& operator=(const WholeChain&) = delete;

   private:
    Value* object_ = nullptr;
    Node* stand_in_ = nullptr;
  };

  /// LibTorch puts the call in front of the call stacks of nodes that have outputs; here the others
  /// follow.
  static void completeCallStacks(Node* first, const Node* end, GraphFunction& callee,
                                 const torch::jit::SourceRange& source) {
    std::optional<ModuleInstanceInfo> instance;
    llvm::SmallVector<Node*, 4> bare;
    collect(first, end, bare, instance);
    std::unordered_map<InlinedCallStack*, InlinedCallStackPtr> made;
    for (Node* node : bare) {
      const auto inner = node->callstack();
      InlinedCallStackPtr& stack = made[inner ? inner->get() : nullptr];
      if (!stack) {
        stack = inner ? c10::make_intrusive<InlinedCallStack>(*inner, &callee, source, instance)
                      : c10::make_intrusive<InlinedCallStack>(&callee, source, instance);
      }
      node->setCallStack(stack);
    }
  }

  static void collect(Node* first, const Node* end, llvm::SmallVector<Node*, 4>& bare,
                      std::optional<ModuleInstanceInfo>& instance) {
    for (Node* node = first; node != end; node = node->next()) {
      if (node->outputs().empty()) {
        bare.push_back(node);
      } else if (!instance && node->callstack()) {
        instance = (*node->callstack())->module_instance();
      }
      for (Block* block : node->blocks()) {
        collect(*block->nodes().begin(), block->return_node(), bare, instance);
      }
    }
  }

  std::unordered_map<GraphFunction*, std::shared_ptr<Graph>> graphs_;
};

}  // namespace

std::shared_ptr<Graph> inlinedGraph(GraphFunction& function) { return Inliner().inlined(function); }

}  // namespace remat
