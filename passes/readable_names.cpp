#include "passes/readable_names.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSet.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cctype>
#include <string>

#include "ir/location.h"
#include "ir/region_order.h"
#include "ir/replay_safety.h"

namespace remat {
namespace {

using torch::jit::Node;
using torch::jit::Value;

std::string identifier(const std::string& path) {
  std::string name;
  for (const char c : path) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  if (!name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) == 0) name = "m" + name;
  return name;
}

/// `softmax` of `aten::_softmax`, `relu` of `aten::relu_`.
std::string opName(const Node& node) {
  llvm::StringRef name = node.kind().toUnqualString();
  return name.trim('_').str();
}

bool isNamed(const ir::OrderedNode& ordered) {
  const Node& node = *ordered.node;
  if (ordered.form != ir::NodeForm::kOperator ||
      !(node.kind().is_aten() || !node.kind().is_prim())) {
    return false;
  }
  for (const Value* output : node.outputs()) {
    if (ir::holdsTensors(*output->type())) return true;
  }
  return false;
}

class Namer {
 public:
  explicit Namer(torch::jit::Graph& graph) : order_(ir::regionOrder(graph)) {
    for (const Value* value : order_.values) {
      if (value->hasDebugName()) taken_.insert(value->debugName());
    }
  }

  void run() {
    for (const ir::OrderedNode& ordered : order_.nodes) {
      if (!isNamed(ordered)) continue;
      // Writes of counters beside the op proper (BatchNorm) don't make a module one of several
      // kinds.
      if (writes(*ordered.node)) continue;
      kinds_[ir::locate(*ordered.node).module_path].insert(opName(*ordered.node));
    }
    for (const ir::OrderedNode& ordered : order_.nodes) {
      if (isNamed(ordered)) name(*ordered.node);
      if (ordered.node->kind() == c10::prim::GetAttr) nameAttribute(*ordered.node);
    }
    for (Value* value : order_.values) {
      if (value->hasDebugName()) dropNumber(*value);
    }
  }

 private:
  static bool writes(const Node& node) {
    return node.maybeSchema() != nullptr && node.schema().is_mutable();
  }

  void name(Node& node) {
    const std::string path = ir::locate(node).module_path;
    std::string base = identifier(path);
    const bool several = base.empty() || kinds_[path].size() > 1 || writes(node);
    if (several) base += (base.empty() ? "" : "_") + identifier(opName(node));
    // A lone op name could be a word of Python.
    const bool always_numbered = path.empty();
    for (Value* output : node.outputs()) {
      if (ir::holdsTensors(*output->type())) output->setDebugName(unique(base, always_numbered));
    }
  }

  void nameAttribute(Node& node) {
    Value* value = node.output();
    const auto type = value->type()->cast<c10::ClassType>();
    const bool is_module = type && type->is_module();
    if (!is_module && !ir::holdsTensors(*value->type())) return;
    std::string path = node.s(c10::attr::name);
    for (const Node* owner = node.input()->node(); owner->kind() == c10::prim::GetAttr;
         owner = owner->input()->node()) {
      path.insert(0, owner->s(c10::attr::name) + ".");
    }
    value->setDebugName(unique((is_module ? "self_" : "") + identifier(path), false));
  }

  /// `x` for `x.1`: loading a file numbers names anew.
  void dropNumber(Value& value) {
    const std::string base = value.debugNameBase();
    if (base != value.debugName() && !base.empty()) value.setDebugName(unique(base, false));
  }

  std::string unique(const std::string& base, bool always_numbered) {
    int& count = counts_[base];
    std::string name;
    do {
      ++count;
      name = count == 1 && !always_numbered ? base : base + "_" + std::to_string(count);
    } while (!taken_.insert(name).second);
    return name;
  }

  ir::RegionOrder order_;
  llvm::StringSet<> taken_;
  llvm::StringMap<llvm::StringSet<>> kinds_;  ///< by module path
  llvm::StringMap<int> counts_;
};

}  // namespace

void giveReadableNames(torch::jit::Graph& graph) { Namer(graph).run(); }

}  // namespace remat
