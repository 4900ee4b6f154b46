#include "passes/legality.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SparseBitVector.h>
#include <llvm/ADT/StringSwitch.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/location.h"
#include "ir/names.h"
#include "ir/op_effects.h"
#include "ir/points_to.h"
#include "ir/region_order.h"
#include "ir/replay_safety.h"
#include "passes/data_dependence.h"
#include "passes/replay_table.h"

namespace remat {
namespace {

using ir::NodeForm;
using ir::OrderedNode;
using ir::PointsTo;
using ir::Reason;
using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;
using Set = llvm::SparseBitVector<>;

bool isContainer(const Value& value) {
  return value.type()->kind() == c10::TypeKind::ListType ||
         value.type()->kind() == c10::TypeKind::DictType;
}

/// Ops that write a weight or running statistics, and are called for another result.
bool writesByTheWay(const Node& node) {
  return llvm::StringSwitch<bool>(node.kind().toUnqualString())
      .Cases("embedding_renorm_", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm",
             true)
      .Cases("_native_batch_norm_legit", "batch_norm_update_stats", "_batch_norm_impl_index",
             "_batch_norm_with_update", true)
      .Default(false);
}

class Judge {
 public:
  Judge(const std::shared_ptr<torch::jit::Graph>& graph, const LegalityOptions& options)
      : order_(ir::regionOrder(*graph)),
        points_to_(*graph, options.module),
        table_(options.allow_ops) {
    for (const auto object : points_to_.escaping()) escaping_.set(object);
  }

  /// Backwards, so that at every node it is known what is written later.
  Legality run() {
    std::vector<Legality::Verdict> verdicts(order_.nodes.size());
    for (size_t i = order_.nodes.size(); i-- > 0;) {
      verdict_ = &verdicts[i];
      judge(i);
      if (order_.nodes[i].form == NodeForm::kBranch) continue;
      for (const auto object : points_to_.writes(*order_.nodes[i].node)) written_later_.set(object);
    }
    return Legality(std::move(verdicts));
  }

 private:
  void judge(size_t id) {
    const OrderedNode& ordered = order_.nodes[id];
    const Node& node = *ordered.node;
    ir::Location location = ir::locate(node);
    verdict_->op = node.kind().toQualString();
    verdict_->module_path = std::move(location.module_path);
    verdict_->source = std::move(location.source);
    switch (ordered.form) {
      case NodeForm::kConstant:
      case NodeForm::kBranch:
      case NodeForm::kInside:
        return;
      case NodeForm::kOpaque:
        return judgeOpaque(id);
      case NodeForm::kOperator:
        return judgeOperator(ordered);
    }
  }

  void refuse(Reason reason, std::string explanation, bool worth_a_remark = true) {
    verdict_->refusals.push_back({reason, std::move(explanation), worth_a_remark});
  }

  void judgeOpaque(size_t id) {
    const Node& node = *order_.nodes[id].node;
    if (node.kind() == c10::prim::Enter) {
      refuse(Reason::kSideEffect,
             "a with statement and all that is inside is run by the interpreter", false);
      for (size_t i = id + 1; i < order_.nodes.size() && order_.nodes[i].form == NodeForm::kInside;
           ++i) {
        judgeHidden(*order_.nodes[i].node);
      }
      return;
    }
    if (node.hasSideEffects() && node.blocks().empty()) {
      refuse(Reason::kSideEffect, verdict_->op + " runs code that may do anything");
    } else {
      const bool loop = node.kind() == c10::prim::Loop;
      refuse(Reason::kUnknownOp,
             (loop ? "a loop" : verdict_->op) + std::string(" is run whole by the interpreter"),
             !loop);
    }
    for (const Block* block : node.blocks()) judgeHidden(*block);
  }

  /// What of an opaque node's inside matters to the user.
  void judgeHidden(const Block& block) {
    for (const Node* node : block.nodes()) judgeHidden(*node);
  }

  void judgeHidden(const Node& node) {
    if (node.kind() == c10::prim::SetAttr || node.kind() == c10::prim::Print) judgeSideEffect(node);
    if (node.blocks().empty() && ir::isRandom(node)) judgeRandom(node);
    for (const Block* block : node.blocks()) judgeHidden(*block);
  }

  void judgeOperator(const OrderedNode& ordered) {
    const Node& node = *ordered.node;
    judgeWrites(node);
    judgeRandom(node);
    if (hasSideEffects(node)) judgeSideEffect(node);
    const bool data_dependent = hasDataDependentShape(node);
    if (data_dependent) {
      refuse(Reason::kDataDependentShape,
             "the sizes of " + verdict_->op + "'s result depend on its data");
    }
    if (!data_dependent && verdict_->refusals.empty() && !table_.isKnown(verdict_->op)) {
      refuse(Reason::kUnknownOp,
             "nothing is known of " + verdict_->op + " (allow-op " + verdict_->op + " admits it)");
    }
    judgeAliases(node);
    if (!verdict_->refusals.empty()) return;
    verdict_->replayable = ir::isReplayableByForm(ordered);
    if (!verdict_->replayable && node.kind() != c10::prim::GetAttr) {
      refuse(Reason::kUnknownOp, verdict_->op + " takes or makes what a replay cannot hold", false);
    }
  }

  void judgeWrites(const Node& node) {
    if (writesByTheWay(node)) {
      return refuse(Reason::kHiddenWrite,
                    verdict_->op + " writes weights or statistics by the way");
    }
    for (const Value* written : ir::writtenInputs(node)) {
      if (isContainer(*written)) {
        refuse(Reason::kHiddenWrite, verdict_->op + " writes a " + written->type()->repr_str());
      } else {
        refuse(Reason::kInPlaceWrite, verdict_->op + " writes its input" + nameOf(*written), false);
      }
    }
  }

  /// ` self.bn1.num_batches_tracked`, if the value is just that.
  std::string nameOf(const Value& value) const {
    const auto& objects = points_to_.reach(&value);
    if (objects.size() != 1 || points_to_.attributePath(objects.front()).empty()) return {};
    return " self." + points_to_.attributePath(objects.front());
  }

  void judgeRandom(const Node& node) {
    const std::string op = node.kind().toQualString();
    if (!ir::isRandom(node) || op == ir::kDropoutMask) return;
    // Attention and recurrent nets draw nothing but dropout masks.
    const auto* schema = node.maybeSchema();
    const bool has_dropout = schema != nullptr && (schema->argumentIndexWithName("dropout_p") ||
                                                   schema->argumentIndexWithName("dropout"));
    refuse(Reason::kRandom, has_dropout
                                ? op + " may draw dropout masks: its dropout is not the constant 0"
                                : op + " draws random numbers that a replay cannot draw again");
  }

  static bool hasSideEffects(const Node& node) {
    // It says so for LibTorch's sake: no pass shall merge or drop a draw.
    if (node.kind() == c10::Symbol::fromQualString(ir::kDropoutMask)) return false;
    return ir::hasSideEffects(node) || node.kind() == c10::prim::SetAttr ||
           node.kind() == c10::prim::CreateObject;
  }

  /// Objects that the method makes for itself (a no_grad) and the checks of norms, which raise, are
  /// not worth a remark.
  void judgeSideEffect(const Node& node) {
    const std::string op = node.kind().toQualString();
    if (node.kind() == c10::prim::SetAttr) {
      refuse(Reason::kSideEffect, op + " sets attribute " + node.s(c10::attr::name),
             node.input(0)->node()->kind() != c10::prim::CreateObject);
    } else {
      refuse(Reason::kSideEffect, op + " has a side effect",
             node.kind() != c10::prim::RaiseException && node.kind() != c10::prim::CreateObject);
    }
  }

  bool reaches(const Value& value, const Set& objects) const {
    for (const auto object : points_to_.reach(&value)) {
      if (objects.test(object)) return true;
    }
    return false;
  }

  /// Every result is in what the method returns, by itself or in a tuple, list or dict.
  static bool isReturned(const Node& node) {
    const auto leaves = [](const Value& value) {
      return llvm::any_of(value.uses(), [](const torch::jit::Use& use) {
        const auto kind = use.user->kind();
        if (kind == c10::prim::Return) return use.user->owningBlock()->owningNode() == nullptr;
        const bool container = kind == c10::prim::TupleConstruct ||
                               kind == c10::prim::ListConstruct || kind == c10::prim::DictConstruct;
        return container && isReturned(*use.user);
      });
    };
    return llvm::all_of(node.outputs(), [&](const Value* output) { return leaves(*output); });
  }

  void judgeAliases(const Node& node) {
    if (node.kind() == c10::prim::GetAttr) return;
    bool reads = false;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (ir::isStatisticInput(node, i)) continue;
      reads |= reaches(*node.input(i), written_later_);
    }
    bool makes = false;
    bool escapes = false;
    for (const Value* output : node.outputs()) {
      makes |= reaches(*output, written_later_);
      // A list is made anew from its elements; these have verdicts of their own.
      escapes |= output->type()->kind() == c10::TypeKind::TensorType && reaches(*output, escaping_);
    }
    if (reads && !node.outputs().empty()) {
      refuse(Reason::kReadAfterWrite, "what " + verdict_->op + " reads is written in place", false);
    }
    if (makes) {
      refuse(Reason::kReadAfterWrite, "what " + verdict_->op + " makes is written in place", false);
    }
    if (escapes && isReturned(node) && makesFreshTensors(verdict_->op)) {
      verdict_->refusals.push_back({Reason::kEscapingAlias,
                                    "the result of " + verdict_->op + " is the method's output",
                                    /*worth_a_remark=*/false, /*evident=*/true});
    } else if (escapes) {
      refuse(Reason::kEscapingAlias,
             "the result of " + verdict_->op + " shares its bytes with what leaves the method",
             false);
    }
  }

  ir::RegionOrder order_;
  PointsTo points_to_;
  ReplayTable table_;
  Set escaping_;
  Set written_later_;
  Legality::Verdict* verdict_ = nullptr;
};

}  // namespace

Legality analyzeLegality(const std::shared_ptr<torch::jit::Graph>& graph,
                         const LegalityOptions& options) {
  return Judge(graph, options).run();
}

}  // namespace remat
