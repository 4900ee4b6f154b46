#include "ir/op_effects.h"

#include <llvm/ADT/StringSwitch.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "ir/mark_nodes.h"
#include "ir/names.h"

namespace remat::ir {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool isNorm(const Node& node) {
  return node.kind() == c10::aten::batch_norm || node.kind() == c10::aten::instance_norm;
}

/// Ops whose schema says that the result is fresh, and whose code returns an input or a view of it
/// in some mode or for some argument.
bool handsInputThrough(const Node& node) {
  if (!node.kind().is_aten()) return false;
  return llvm::StringSwitch<bool>(node.kind().toUnqualString())
      .Cases("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", true)
      .Cases("type_as", "atleast_1d", "atleast_2d", "atleast_3d", "sum_to_size", true)
      .Cases("einsum", "tensordot", "chain_matmul", "linalg_multi_dot", "conj_physical", true)
      .Cases("broadcast_tensors", "meshgrid", "cartesian_prod", "combinations", true)
      .Cases("unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", true)
      .Cases("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", true)
      .Cases("as_tensor", "lift", "pad", "_pad_enum", "align_to", "align_as", "align_tensors", true)
      .Cases("_cast_Byte", "_cast_Char", "_cast_Double", "_cast_Float", "_cast_Half", true)
      .Cases("_cast_Int", "_cast_Long", "_cast_Short", "autocast_to_full_precision",
             "autocast_to_reduced_precision", "_autocast_to_full_precision",
             "_autocast_to_reduced_precision", true)
      .Default(false);
}

bool declaresAliases(const Node& node) {
  const auto* op = node.maybeOperator();
  if (op == nullptr) return false;
  const auto kind = op->aliasAnalysisKind();
  return kind != c10::AliasAnalysisKind::CONSERVATIVE;
}

/// Built in, or one of our own small ops; a region that is called is somebody's code.
bool isFamiliar(const Node& node) {
  if (node.kind().is_aten() || node.kind().is_prim()) return true;
  const std::string op = node.kind().toQualString();
  return isMark(node) || op == kUse || op == kDropoutMask || op == kDropout ||
         op == kAttentionWeights || op == kAttention ||
         std::find(std::begin(kWrittenCopies), std::end(kWrittenCopies), op) !=
             std::end(kWrittenCopies);
}

}  // namespace

std::vector<const Value*> sharedInputs(const Node& node) {
  const auto* schema = node.maybeSchema();
  const bool all = handsInputThrough(node) || isUnknownCall(node) || schema == nullptr ||
                   schema->is_vararg() || schema->is_varret();
  if (all) return {node.inputs().begin(), node.inputs().end()};
  const auto aliases = [](const c10::Argument& argument) {
    const auto* info = argument.alias_info();
    return info != nullptr && (!info->beforeSets().empty() || !info->containedTypes().empty());
  };
  if (!std::any_of(schema->returns().begin(), schema->returns().end(), aliases)) return {};
  std::vector<const Value*> shared;
  for (size_t i = 0; i < schema->arguments().size(); ++i) {
    if (aliases(schema->arguments()[i])) shared.push_back(node.input(i));
  }
  return shared;
}

std::vector<const Value*> writtenInputs(const Node& node) {
  std::vector<const Value*> written;
  const auto* schema = node.maybeSchema();
  if (schema == nullptr || !schema->is_mutable()) return written;
  const auto& arguments = schema->arguments();
  for (size_t i = 0; i < arguments.size() && i < node.inputs().size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      written.push_back(node.inputs()[i]);
    }
  }
  return written;
}

std::vector<const Value*> writtenStatistics(const Node& node) {
  std::vector<const Value*> written;
  if (!isNorm(node)) return written;
  // Input 5: `training` of batch_norm, `use_input_stats` of instance_norm.
  const auto training = torch::jit::toIValue(node.input(5));
  if (training && training->isBool() && !training->toBool()) return written;
  for (const size_t i : {3, 4}) {
    if (node.input(i)->type()->kind() != c10::TypeKind::NoneType) {
      written.push_back(node.input(i));
    }
  }
  return written;
}

bool isStatisticInput(const Node& norm, size_t input) {
  return isNorm(norm) && (input == 3 || input == 4);
}

bool isUnknownCall(const Node& node) {
  switch (node.kind()) {
    case c10::prim::CallFunction:
    case c10::prim::CallMethod:
    case c10::prim::PythonOp:
    case c10::prim::awaitable:
    case c10::prim::awaitable_wait:
    case c10::prim::fork:
    case c10::prim::rpc_async:
    case c10::prim::rpc_remote:
    case c10::prim::rpc_sync:
    case c10::aten::wait:
      return true;
    default:
      return !isFamiliar(node) && !declaresAliases(node);
  }
}

}  // namespace remat::ir
