#include "passes/data_dependence.h"

#include <llvm/ADT/StringSwitch.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

namespace remat {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool isAlwaysDataDependent(const Node& node) {
  return llvm::StringSwitch<bool>(node.kind().toUnqualString())
      .Cases("nonzero", "nonzero_numpy", "argwhere", "masked_select", "bincount", true)
      .Cases("unique", "_unique", "_unique2", "unique_dim", "unique_consecutive",
             "unique_dim_consecutive", true)
      .Cases("repeat_interleave", "boolean_dispatch", "to_sparse", "coalesce", true)
      .Default(false);
}

/// An integer scalar type by its number, which is what TorchScript has for dtypes.
bool isIntegerType(const Value* dtype) {
  const auto constant = torch::jit::toIValue(dtype);
  return constant && constant->isInt() &&
         c10::isIntegralType(static_cast<c10::ScalarType>(constant->toInt()),
                             /*includeBool=*/false);
}

enum class Elements : uint8_t {
  kUnknown,
  kIntegers,   ///< always
  kPositions,  ///< the second result holds positions
  kAsInput,    ///< whatever the first input holds
  kRange,      ///< arange: what its arguments say
  kAsBoth,     ///< arithmetic of two operands
};

Elements elementsOf(const Node& node) {
  return llvm::StringSwitch<Elements>(node.kind().toUnqualString())
      .Cases("argmax", "argmin", "argsort", "randint", "randperm", Elements::kIntegers)
      .Cases("bucketize", "searchsorted", Elements::kIntegers)
      .Cases("topk", "sort", "kthvalue", "cummax", "cummin", Elements::kPositions)
      .Cases("view", "reshape", "flatten", "squeeze", "unsqueeze", Elements::kAsInput)
      .Cases("transpose", "permute", "select", "slice", "narrow", Elements::kAsInput)
      .Cases("expand", "contiguous", "clone", "detach", Elements::kAsInput)
      .Cases("add", "sub", "mul", Elements::kAsBoth)
      .Case("arange", Elements::kRange)
      .Default(Elements::kUnknown);
}

bool isIntegerConstant(const Value& value) {
  const auto constant = torch::jit::toIValue(&value);
  return constant && constant->isTensor() && constant->toTensor().defined() &&
         c10::isIntegralType(constant->toTensor().scalar_type(), /*includeBool=*/false);
}

bool makesIntegerRange(const Node& arange) {
  const auto* schema = arange.maybeSchema();
  if (schema == nullptr) return false;
  for (size_t i = 0; i < schema->arguments().size(); ++i) {
    const Value* argument = arange.input(i);
    const std::string& name = schema->arguments()[i].name();
    if (name == "dtype" && argument->type()->kind() != c10::TypeKind::NoneType) {
      return isIntegerType(argument);
    }
    const bool bound = name == "start" || name == "end" || name == "step";
    if (bound && argument->type()->kind() != c10::TypeKind::IntType) return false;
  }
  return true;
}

/// Whether the tensor is known to hold integers, so that indexing by it is a lookup and not a mask.
bool holdsIntegers(const Value& value) {
  const Value* current = &value;
  // Views lead to other views, never in a circle.
  while (true) {
    const Node& node = *current->node();
    if (node.kind() == c10::prim::Constant) return isIntegerConstant(*current);
    if (!node.kind().is_aten() || node.inputs().empty()) return false;
    if (node.kind() == c10::aten::to && node.inputs().size() > 1 && isIntegerType(node.input(1))) {
      return true;
    }
    switch (elementsOf(node)) {
      case Elements::kIntegers:
        return true;
      case Elements::kPositions:
        return current->offset() == 1;
      case Elements::kRange:
        return makesIntegerRange(node);
      case Elements::kAsBoth:
        if (node.input(1)->type()->kind() != c10::TypeKind::IntType &&
            !holdsIntegers(*node.input(1))) {
          return false;
        }
        current = node.input(0);
        break;
      case Elements::kAsInput:
        current = node.input(0);
        break;
      case Elements::kUnknown:
        return false;
    }
  }
}

bool indexesByMask(const Node& index) {
  const Node* indices = index.input(1)->node();
  if (indices->kind() != c10::prim::ListConstruct) return true;
  for (const Value* entry : indices->inputs()) {
    if (entry->type()->kind() == c10::TypeKind::NoneType) continue;
    if (!holdsIntegers(*entry)) return true;
  }
  return false;
}

}  // namespace

bool hasDataDependentShape(const Node& node) {
  if (!node.kind().is_aten()) return false;
  if (isAlwaysDataDependent(node)) return true;
  switch (node.kind()) {
    case c10::aten::index:
      return indexesByMask(node);
    case c10::aten::where:  // with a condition only it is nonzero
      return node.inputs().size() == 1;
    case c10::aten::one_hot: {
      const auto classes = torch::jit::constant_as<int64_t>(node.input(1));
      return !classes || *classes < 0;
    }
    default:
      return false;
  }
}

}  // namespace remat
