#include "ir/mark_nodes.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/names.h"

namespace remat::ir {
namespace {

bool isKind(const torch::jit::Node& node, const char* name) {
  return node.kind() == c10::Symbol::fromQualString(name);
}

}  // namespace

bool isKeep(const torch::jit::Node& node) { return isKind(node, kKeepMark); }
bool isDrop(const torch::jit::Node& node) { return isKind(node, kDropMark); }
bool isRegenerate(const torch::jit::Node& node) { return isKind(node, kRegenerateMark); }
bool isMark(const torch::jit::Node& node) {
  return isKeep(node) || isDrop(node) || isRegenerate(node);
}

}  // namespace remat::ir
