#include "passes/functionalize.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSwitch.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>

#include "passes/replay_table.h"

namespace remat {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

enum class Form : uint8_t {
  kNone,         ///< stays in place
  kFunctional,   ///< the op without the underscore
  kWrittenCopy,  ///< an op of ours: the one without the underscore may promote its operands
};

/// Ops that autocast casts when functional but not when in place (exp_, pow_, rsqrt_, addcmul_,
/// index_put_, …) are left out: there the two forms round differently. So is masked_fill_: the
/// functional form's result is contiguous, whatever the strides of its input. So are elu_, selu_
/// and celu_: in place their derivative is computed from the result, by another formula.
Form formOf(const Node& node) {
  if (!node.kind().is_aten() || node.maybeSchema() == nullptr) return Form::kNone;
  const auto& arguments = node.schema().arguments();
  const bool takes_tensors =
      std::any_of(arguments.begin() + 1, arguments.end(), [](const c10::Argument& argument) {
        return argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor());
      });
  // Those with a rounding mode stay as they are, and so do bounds that are tensors.
  const bool plain = node.schema().overload_name() == "Tensor";
  const Form of_tensors = plain ? Form::kWrittenCopy : Form::kNone;
  const Form of_numbers = takes_tensors ? Form::kNone : Form::kFunctional;
  return llvm::StringSwitch<Form>(node.kind().toUnqualString())
      .Cases("relu_", "relu6_", "hardtanh_", "leaky_relu_", Form::kFunctional)
      .Cases("silu_", "mish_", "hardswish_", "hardsigmoid_", "threshold_", Form::kFunctional)
      .Cases("sigmoid_", "tanh_", "dropout_", Form::kFunctional)
      .Cases("abs_", "neg_", "sqrt_", "sin_", "cos_", "erf_", Form::kFunctional)
      .Cases("floor_", "ceil_", "round_", Form::kFunctional)
      .Cases("clamp_", "clamp_min_", "clamp_max_", of_numbers)
      .Cases("add_", "sub_", "mul_", "div_", takes_tensors ? of_tensors : Form::kFunctional)
      .Default(Form::kNone);
}

/// The op without the trailing underscore, or ours of that name.
c10::Symbol functionalKind(const Node& node, Form form) {
  const std::string name = node.kind().toUnqualString();
  return c10::Symbol::fromQualString((form == Form::kWrittenCopy ? "remat::" : "aten::") +
                                     name.substr(0, name.size() - 1));
}

/// Whether an overload of aten's takes the same arguments and writes nothing.
bool hasFunctionalForm(const Node& node) {
  const auto& in_place = node.schema();
  for (const auto& op : torch::jit::getAllOperatorsFor(functionalKind(node, Form::kFunctional))) {
    const auto& schema = op->schema();
    if (schema.overload_name() != in_place.overload_name() || schema.is_mutable()) continue;
    if (schema.arguments().size() != in_place.arguments().size()) continue;
    if (schema.returns().size() != 1 || schema.returns()[0].alias_info() != nullptr) continue;
    bool same = true;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      same &= *schema.arguments()[i].type() == *in_place.arguments()[i].type();
    }
    if (same) return true;
  }
  return false;
}

bool makesOnlyNumbers(const Node& node) {
  for (const Value* output : node.outputs()) {
    switch (output->type()->kind()) {
      case c10::TypeKind::IntType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::BoolType:
      case c10::TypeKind::NumberType:
      case c10::TypeKind::StringType:
      case c10::TypeKind::DeviceObjType:
        continue;
      case c10::TypeKind::ListType:  // sizes and strides
        if (output->type()->containedType(0)->kind() == c10::TypeKind::IntType) continue;
        return false;
      default:
        return false;
    }
  }
  return !node.outputs().empty();
}

/// Whether `user` may look at a tensor without making a second name for its bytes.
bool onlyReads(const Node& user) {
  if (!user.blocks().empty() || user.maybeSchema() == nullptr || user.schema().is_mutable()) {
    return false;
  }
  return makesFreshTensors(user.kind().toQualString()) ||
         (makesOnlyNumbers(user) && !user.hasSideEffects());
}

bool changesContext(const Node& node) {
  return node.kind() == c10::prim::Enter || node.kind() == c10::prim::Exit ||
         llvm::StringRef(node.kind().toQualString()).contains("set_grad_enabled") ||
         llvm::StringRef(node.kind().toQualString()).contains("autocast");
}

bool changesContextBetween(const Node* from, const Node* to) {
  for (const Node* node = from->next(); node != to; node = node->next()) {
    if (changesContext(*node)) return true;
  }
  return false;
}

bool isCast(const Node& node) { return node.kind() == c10::aten::to; }

/// Whether nobody but `user` (and readers that ran before `write`) knows the bytes of `value`.
bool isReadOnlyBefore(const Value& value, const Node& user, const Node& write) {
  for (const auto& use : value.uses()) {
    if (use.user == &user || use.user == &write) continue;
    if (!use.user->isBefore(&write)) {
      // Later uses of the written value itself are redirected; of what it was cast from they are
      // not.
      if (&user != &write) return false;
      continue;
    }
    if (!onlyReads(*use.user)) return false;
  }
  return true;
}

/// Whether the write of `write` can be seen through its result and its input's name only. Looks
/// through casts, which may hand their input on: that has no other name then either.
bool isPrivateWrite(const Node& write) {
  const Node* user = &write;
  const Value* value = write.input(0);
  while (true) {
    const Node* producer = value->node();
    if (producer->owningBlock() != write.owningBlock() || producer->kind() == c10::prim::Param) {
      return false;
    }
    if (!isReadOnlyBefore(*value, *user, write)) return false;
    if (!isCast(*producer)) {
      return makesFreshTensors(producer->kind().toQualString()) &&
             !changesContextBetween(producer, &write);
    }
    user = producer;
    value = producer->input(0);
  }
}

class Functionalizer {
 public:
  bool run(Block& block) {
    for (auto it = block.nodes().begin(); it != block.nodes().end(); ++it) {
      for (Block* inner : it->blocks()) run(*inner);
      const Form form = formOf(**it);
      if (form == Form::kNone || it->outputs().size() != 1) continue;
      if (!hasFunctionalForm(**it) || !isPrivateWrite(**it)) continue;
      replace(**it, form);
      it.destroyCurrent();
      changed_ = true;
    }
    return changed_;
  }

 private:
  static void replace(Node& node, Form form) {
    Graph& graph = *node.owningGraph();
    Value* x = node.input(0);
    Node* made = graph.create(functionalKind(node, form), node.inputs());
    made->insertBefore(&node);
    made->copyMetadata(&node);
    Value* y = made->output();
    y->copyMetadata(node.output());
    x->replaceAllUsesAfterNodeWith(&node, y);
    node.output()->replaceAllUsesWith(y);
  }

  bool changed_ = false;
};

}  // namespace

bool functionalize(const std::shared_ptr<Graph>& graph) {
  return Functionalizer().run(*graph->block());
}

}  // namespace remat
