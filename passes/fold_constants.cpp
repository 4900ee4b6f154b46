#include "passes/fold_constants.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

#include <optional>

#include "ir/replay_safety.h"

namespace remat {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool isImmutable(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
      return true;
    default:
      return false;
  }
}

bool hasOnlyImmutableOutputs(const Node& node) {
  if (node.outputs().empty()) return false;
  for (const Value* output : node.outputs()) {
    if (!isImmutable(*output->type())) return false;
  }
  return true;
}

bool isBuiltIn(const Node& node) { return node.kind().is_aten() || node.kind().is_prim(); }

/// Built in, and nothing but its outputs tells that it ran.
bool isPure(const Node& node) {
  if (!isBuiltIn(node) || !node.blocks().empty() || node.hasSideEffects()) return false;
  if (ir::isRandom(node)) return false;
  switch (node.kind()) {
    // They hide a write in their running statistics.
    case c10::aten::batch_norm:
    case c10::aten::instance_norm:
    case c10::prim::fork:
    case c10::prim::CallFunction:
    case c10::prim::CallMethod:
    case c10::prim::Enter:
    case c10::prim::Exit:
    case c10::aten::wait:
      return false;
    default:
      break;
  }
  const auto* schema = node.maybeSchema();
  return schema == nullptr || !schema->is_mutable();
}

/// A dead loop may not end, and a dead branch may raise: only empty branches are dead for sure.
bool isRemovable(const Node& node) {
  for (const Value* output : node.outputs()) {
    if (output->hasUses()) return false;
  }
  if (node.kind() == c10::prim::If) {
    for (const Block* block : node.blocks()) {
      if (block->nodes().begin() != block->nodes().end()) return false;
    }
    return true;
  }
  return !node.outputs().empty() && isPure(node);
}

/// Whether every result can be what the node says it makes. In a branch that is never taken a None
/// is cast to a tensor or a number, of which there is no constant.
bool fits(const torch::jit::Stack& results, const Node& node) {
  for (size_t i = 0; i < results.size(); ++i) {
    const c10::Type& type = *node.outputs()[i]->type();
    const bool may_be_none =
        type.kind() == c10::TypeKind::NoneType || type.kind() == c10::TypeKind::OptionalType;
    if (results[i].isNone() && !may_be_none) return false;
  }
  return true;
}

class Folder {
 public:
  bool run(Block& block) {
    for (auto it = block.nodes().begin(); it != block.nodes().end();) {
      Node* node = *it++;
      for (Block* inner : node->blocks()) run(*inner);
      visit(*node);
    }
    removeDead(block);
    return changed_;
  }

 private:
  void visit(Node& node) {
    switch (node.kind()) {
      case c10::prim::Constant:
        return;
      case c10::prim::If:
        return takeBranch(node);
      case c10::prim::TupleUnpack:
        return forwardUnpack(node);
      case c10::prim::TupleIndex:
        return forwardIndex(node);
      case c10::aten::Int:
      case c10::aten::ScalarImplicit:
      case c10::aten::IntImplicit:
        return forwardInteger(node);
      default:
        return fold(node);
    }
  }

  void fold(Node& node) {
    if (!hasOnlyImmutableOutputs(node) || !isPure(node) || node.inputs().empty()) return;
    for (const Value* input : node.inputs()) {
      if (input->node()->kind() != c10::prim::Constant || !isImmutable(*input->type())) return;
    }
    const auto results = torch::jit::runNodeIfInputsAreConstant(&node);
    if (!results || !fits(*results, node)) return;
    torch::jit::WithInsertPoint insert_before(&node);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const auto constant =
          torch::jit::tryInsertConstant(*node.owningGraph(), results->at(i), node.sourceRange());
      if (!constant) continue;
      if ((*results)[i].isNone()) (*constant)->setType(node.outputs()[i]->type());
      node.outputs()[i]->replaceAllUsesWith(*constant);
      changed_ = true;
    }
  }

  void takeBranch(Node& branch) {
    const auto condition = torch::jit::constant_as<bool>(branch.input());
    if (!condition) return;
    Block* taken = branch.blocks().at(*condition ? 0 : 1);
    for (auto it = taken->nodes().begin(); it != taken->nodes().end();) {
      Node* node = *it++;
      node->moveBefore(&branch);
    }
    for (size_t i = 0; i < branch.outputs().size(); ++i) {
      branch.outputs()[i]->replaceAllUsesWith(taken->outputs().at(i));
    }
    branch.destroy();
    changed_ = true;
  }

  void forwardUnpack(Node& unpack) {
    Node* tuple = unpack.input()->node();
    if (tuple->kind() != c10::prim::TupleConstruct) return;
    for (size_t i = 0; i < unpack.outputs().size(); ++i) {
      if (!unpack.outputs()[i]->hasUses()) continue;
      unpack.outputs()[i]->replaceAllUsesWith(tuple->inputs()[i]);
      changed_ = true;
    }
  }

  void forwardIndex(Node& index) {
    Node* tuple = index.inputs()[0]->node();
    if (tuple->kind() != c10::prim::TupleConstruct || !index.output()->hasUses()) return;
    const auto position = torch::jit::constant_as<int64_t>(index.inputs()[1]);
    if (!position) return;
    const auto size = static_cast<int64_t>(tuple->inputs().size());
    const int64_t at = *position < 0 ? *position + size : *position;
    if (at < 0 || at >= size) return;
    index.output()->replaceAllUsesWith(tuple->inputs()[at]);
    changed_ = true;
  }

  /// Traces wrap sizes into tensors and unwrap them again.
  void forwardInteger(Node& unwrap) {
    Node* wrap = unwrap.input(0)->node();
    if (wrap->kind() != c10::prim::NumToTensor) return fold(unwrap);
    Value* number = wrap->input(0);
    if (number->type()->kind() != c10::TypeKind::IntType || !unwrap.output()->hasUses()) return;
    unwrap.output()->replaceAllUsesWith(number);
    changed_ = true;
  }

  void removeDead(Block& block) {
    for (auto it = block.nodes().rbegin(); it != block.nodes().rend(); ++it) {
      if (!isRemovable(**it)) continue;
      it.destroyCurrent();
      changed_ = true;
    }
  }

  bool changed_ = false;
};

}  // namespace

bool foldConstants(const std::shared_ptr<Graph>& graph) {
  bool changed = false;
  // A branch that was taken shows new constants to what follows it in the same walk, but not to a
  // loop's or a branch's beginning.
  while (Folder().run(*graph->block())) changed = true;
  return changed;
}

}  // namespace remat
