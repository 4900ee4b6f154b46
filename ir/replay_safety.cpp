#include "ir/replay_safety.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <optional>
#include <string>

#include "ir/names.h"

namespace remat::ir {
namespace {

using torch::jit::AliasDb;
using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

bool isKind(const Node& node, const char* name) {
  return node.kind() == c10::Symbol::fromQualString(name);
}

bool isBatchNormLike(const Node& node) {
  return node.kind() == c10::aten::batch_norm || node.kind() == c10::aten::instance_norm;
}

/// `self.layer1.0.bn1.num_batches_tracked` as a path of attribute names; nothing for other values.
std::optional<std::string> attributePath(const Value* value) {
  std::string path;
  const Node* node = value->node();
  while (node->kind() == c10::prim::GetAttr) {
    path = "." + node->s(c10::attr::name) + path;
    value = node->input(0);
    node = value->node();
  }
  if (path.empty() || node->kind() != c10::prim::Param) {
    return std::nullopt;
  }
  return value->debugName() + path;
}

bool schemaWrites(const Node& node) {
  const auto* schema = node.maybeSchema();
  return schema != nullptr && schema->is_mutable();
}

/// Nodes that may write something: by schema, or because they hold or call code that might.
void collectWriters(Block* block, const AliasDb& aliases, std::vector<Node*>& writers) {
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) {
      collectWriters(inner, aliases, writers);
    }
    if (node->blocks().empty() && (aliases.isMutable(node) || schemaWrites(*node))) {
      writers.push_back(node);
    }
  }
}

/// A write that can only reach one attribute which nobody else in the graph looks at.
class PrivateAttributeWrites {
 public:
  explicit PrivateAttributeWrites(Block* block) { countUses(block); }

  bool contains(const Node* writer) const {
    if (writer->kind() == c10::prim::SetAttr || !schemaWrites(*writer)) {
      return isBatchNormLike(*writer);
    }
    const auto& arguments = writer->schema().arguments();
    for (size_t i = 0; i < arguments.size() && i < writer->inputs().size(); ++i) {
      const auto* alias = arguments[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) {
        continue;
      }
      const auto path = attributePath(writer->input(i));
      if (!path || foreign_uses_.count(*path) != 0) {
        return false;
      }
    }
    // What the write returns is the attribute again: it must lead nowhere.
    for (const Value* output : writer->outputs()) {
      if (output->hasUses()) {
        return false;
      }
    }
    return true;
  }

 private:
  /// Uses of an attribute's value other than by an in-place op on it or as a running statistic.
  void countUses(Block* block) {
    for (Node* node : block->nodes()) {
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        const auto path = attributePath(node->input(i));
        if (!path || node->kind() == c10::prim::GetAttr) {
          continue;
        }
        const bool statistic = isBatchNormLike(*node) && (i == 3 || i == 4);
        const bool own_write = schemaWrites(*node) && i == 0;
        if (!statistic && !own_write) {
          foreign_uses_[*path]++;
        }
      }
      for (Block* inner : node->blocks()) {
        countUses(inner);
      }
    }
  }

  std::map<std::string, int> foreign_uses_;
};

bool isFrameType(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::SymIntType:
      return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::TupleType:
      for (const auto& inner : type.containedTypes()) {
        if (!isFrameType(*inner)) {
          return false;
        }
      }
      return true;
    default:
      return false;
  }
}

bool isContainerOp(const Node& node) {
  switch (node.kind()) {
    case c10::prim::ListConstruct:
    case c10::prim::TupleConstruct:
    case c10::prim::ListUnpack:
    case c10::prim::TupleUnpack:
    case c10::prim::TupleIndex:
    case c10::prim::unchecked_cast:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool isRandom(const Node& node) {
  if (isKind(node, kDropoutMask)) {
    return true;
  }
  if (node.kind() == c10::aten::scaled_dot_product_attention) {
    const auto dropout = torch::jit::toIValue(node.namedInput("dropout_p"));
    return !dropout || dropout->toDouble() != 0;
  }
  return node.isNondeterministic();
}

bool holdsTensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) {
    return true;
  }
  if (type.kind() == c10::TypeKind::AnyType) {
    return true;
  }
  for (const auto& inner : type.containedTypes()) {
    if (holdsTensors(*inner)) {
      return true;
    }
  }
  return false;
}

bool isReplayableByForm(const OrderedNode& ordered) {
  const Node& node = *ordered.node;
  if (ordered.form != NodeForm::kOperator || node.outputs().empty()) {
    return false;
  }
  for (const Value* input : node.inputs()) {
    if (!isFrameType(*input->type())) {
      return false;
    }
  }
  for (const Value* output : node.outputs()) {
    if (!isFrameType(*output->type())) {
      return false;
    }
  }
  if (isContainerOp(node)) {
    return true;
  }
  if (node.maybeOperator() == nullptr || schemaWrites(node) || node.hasSideEffects()) {
    return false;
  }
  return !isRandom(node) || isKind(node, kDropoutMask);
}

std::vector<char> writtenValues(const std::shared_ptr<torch::jit::Graph>& graph,
                                const RegionOrder& order) {
  std::vector<char> written(order.values.size(), 0);
  AliasDb aliases(graph);
  std::vector<Node*> writers;
  collectWriters(graph->block(), aliases, writers);
  const PrivateAttributeWrites private_writes(graph->block());
  for (const Node* writer : writers) {
    if (private_writes.contains(writer)) {
      continue;
    }
    for (size_t id = 0; id < order.values.size(); ++id) {
      Value* value = order.values[id];
      if (written[id] == 0 && holdsTensors(*value->type()) &&
          aliases.writesToAlias(const_cast<Node*>(writer), {value})) {
        written[id] = 1;
      }
    }
  }
  return written;
}

}  // namespace remat::ir
