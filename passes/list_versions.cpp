#include "passes/list_versions.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <vector>

namespace remat {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

bool isTensorList(const Node& node) {
  if (node.kind() != c10::prim::ListConstruct) return false;
  const auto* type = node.output()->type()->castRaw<c10::ListType>();
  return type != nullptr && type->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool isAppend(const Node& node, const Value* list) {
  return node.kind() == c10::aten::append && node.input(0) == list && node.input(1) != list;
}

/// Operators that read a list's elements and forget the list.
bool onlyReads(const Node& node) {
  switch (node.kind()) {
    case c10::aten::cat:
    case c10::aten::concat:
    case c10::aten::stack:
    case c10::aten::len:
    case c10::aten::__getitem__:
    case c10::prim::ListUnpack:
      return true;
    default:
      return false;
  }
}

/// A cast to what the list is already: another name for it.
bool isRenaming(const Node& node) {
  return node.kind() == c10::prim::unchecked_cast &&
         *node.output()->type() == *node.input(0)->type();
}

void removeRenamings(Value& list) {
  std::vector<Node*> renamings;
  for (const auto& use : list.uses()) {
    if (isRenaming(*use.user)) renamings.push_back(use.user);
  }
  for (Node* renaming : renamings) {
    renaming->output()->replaceAllUsesWith(&list);
    renaming->destroy();
  }
  if (!renamings.empty()) removeRenamings(list);
}

/// The nodes that use `list`, in program order; empty unless all may and some appends. Readers may
/// be inside of branches and loops, whose place is that of the whole; appends may not.
std::vector<Node*> users(const Node& construct) {
  const Value* list = construct.output();
  bool appends = false;
  std::vector<Node*> found;
  for (const auto& use : list->uses()) {
    Node* user = use.user;
    const bool append = isAppend(*user, list) && user->output()->uses().empty() &&
                        user->owningBlock() == construct.owningBlock();
    if (!append && !onlyReads(*user)) return {};
    appends |= append;
    found.push_back(user);
  }
  if (!appends) return {};
  std::sort(found.begin(), found.end(), [](Node* a, Node* b) { return a->isBefore(b); });
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool makeVersions(Node& construct) {
  const std::vector<Node*> nodes = users(construct);
  Value* const list = construct.output();
  Value* version = list;
  for (Node* user : nodes) {
    if (!isAppend(*user, list)) {
      if (version != list) user->replaceInputWith(list, version);
      continue;
    }
    std::vector<Value*> elements = version->node()->inputs().vec();
    elements.push_back(user->input(1));
    Node* next = user->owningGraph()->create(c10::prim::ListConstruct, elements);
    next->insertBefore(user);
    next->copyMetadata(user);
    next->output()->setType(list->type());
    version = next->output();
    user->destroy();
  }
  return !nodes.empty();
}

bool visit(Block& block) {
  bool changed = false;
  for (Node* node : block.nodes()) {
    for (Block* inner : node->blocks()) changed |= visit(*inner);
    if (!isTensorList(*node)) continue;
    removeRenamings(*node->output());
    changed |= makeVersions(*node);
  }
  return changed;
}

}  // namespace

bool makeListVersions(torch::jit::Graph& graph) { return visit(*graph.block()); }

}  // namespace remat
