#include "ir/replay_safety.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>

#include "ir/names.h"

namespace remat::ir {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool isKind(const Node& node, const char* name) {
  return node.kind() == c10::Symbol::fromQualString(name);
}

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

bool isRecurrentNet(const Node& node) {
  const std::string op = node.kind().toUnqualString();
  return node.kind().is_aten() &&
         (op == "lstm" || op == "gru" || op == "rnn_tanh" || op == "rnn_relu");
}

/// Between layers, in training mode, with dropout.
bool recurrentNetDraws(const Node& node) {
  const auto dropout = torch::jit::toIValue(node.namedInput("dropout"));
  const auto train = torch::jit::toIValue(node.namedInput("train"));
  const bool no_dropout = dropout && dropout->isDouble() && dropout->toDouble() == 0;
  const bool evaluation = train && train->isBool() && !train->toBool();
  return !no_dropout && !evaluation;
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
  if (isRecurrentNet(node)) return recurrentNetDraws(node);
  return node.isNondeterministic();
}

bool hasSideEffects(const Node& node) {
  // Declared conservative, so that no pass merges or drops draws.
  return !isKind(node, kDropoutMask) && node.hasSideEffects();
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
  if (node.maybeOperator() == nullptr || hasSideEffects(node)) {
    return false;
  }
  const auto* schema = node.maybeSchema();
  if (schema != nullptr && schema->is_mutable()) {
    return false;
  }
  return !isRandom(node) || isKind(node, kDropoutMask);
}

}  // namespace remat::ir
