#include "passes/explicit_dropout.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/names.h"

namespace remat {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

Node* insertLike(Node& node, const char* kind, at::ArrayRef<Value*> inputs) {
  Node* made = node.owningGraph()->create(c10::Symbol::fromQualString(kind), inputs);
  made->insertBefore(&node);
  made->copyMetadata(&node);
  return made;
}

void makeExplicit(Node& dropout) {
  Value* x = dropout.input(0);
  Value* p = dropout.input(1);
  Value* train = dropout.input(2);
  Value* mask = insertLike(dropout, ir::kDropoutMask, {x, p, train})->output();
  Value* y = insertLike(dropout, ir::kDropout, {x, mask, p, train})->output();
  y->copyMetadata(dropout.output());
  dropout.output()->replaceAllUsesWith(y);
}

bool visit(Block& block) {
  bool changed = false;
  for (auto it = block.nodes().begin(); it != block.nodes().end(); ++it) {
    for (Block* inner : it->blocks()) changed |= visit(*inner);
    if (it->kind() != c10::aten::dropout) continue;
    makeExplicit(**it);
    it.destroyCurrent();
    changed = true;
  }
  return changed;
}

}  // namespace

bool makeDropoutExplicit(const std::shared_ptr<torch::jit::Graph>& graph) {
  return visit(*graph->block());
}

}  // namespace remat
