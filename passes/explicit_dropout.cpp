#include "passes/explicit_dropout.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/names.h"
#include "ir/replay_safety.h"

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

/// The dropout of `x`, in front of `node`.
Value* insertDropout(Node& node, Value* x, Value* p, Value* train) {
  Value* mask = insertLike(node, ir::kDropoutMask, {x, p, train})->output();
  return insertLike(node, ir::kDropout, {x, mask, p, train})->output();
}

void makeExplicit(Node& dropout) {
  Value* y = insertDropout(dropout, dropout.input(0), dropout.input(1), dropout.input(2));
  y->copyMetadata(dropout.output());
  dropout.output()->replaceAllUsesWith(y);
}

void makeAttentionExplicit(Node& attention) {
  const torch::jit::WithInsertPoint before(&attention);
  Value* train = attention.owningGraph()->insertConstant(true);
  const auto input = [&](const char* name) { return attention.namedInput(name); };
  Value* p = input("dropout_p");
  Value* weights = insertLike(attention, ir::kAttentionWeights,
                              {input("query"), input("key"), input("attn_mask"), p,
                               input("is_causal"), input("scale"), input("enable_gqa")})
                       ->output();
  Value* dropped = insertDropout(attention, weights, p, train);
  Value* y = insertLike(attention, ir::kAttention,
                        {dropped, input("query"), input("key"), input("value"), input("attn_mask"),
                         p, input("is_causal"), input("scale"), input("enable_gqa")})
                 ->output();
  y->copyMetadata(attention.output());
  attention.output()->replaceAllUsesWith(y);
}

bool visit(Block& block, bool attention) {
  bool changed = false;
  for (auto it = block.nodes().begin(); it != block.nodes().end(); ++it) {
    for (Block* inner : it->blocks()) changed |= visit(*inner, attention);
    if (it->kind() == c10::aten::dropout) {
      makeExplicit(**it);
    } else if (attention && it->kind() == c10::aten::scaled_dot_product_attention &&
               ir::isRandom(**it)) {
      makeAttentionExplicit(**it);
    } else {
      continue;
    }
    it.destroyCurrent();
    changed = true;
  }
  return changed;
}

}  // namespace

bool makeDropoutExplicit(const std::shared_ptr<torch::jit::Graph>& graph, bool attention) {
  return visit(*graph->block(), attention);
}

}  // namespace remat
