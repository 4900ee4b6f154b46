#include "ir/verifier.h"

#include <llvm/ADT/SparseBitVector.h>
#include <torch/csrc/jit/ir/ir.h>

#include <unordered_set>

#include "ir/location.h"
#include "ir/mark_nodes.h"
#include "ir/names.h"
#include "ir/op_effects.h"
#include "ir/points_to.h"
#include "ir/region_order.h"
#include "ir/replay_safety.h"

namespace remat::ir {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

struct Finding {
  int32_t value;
  const char* reason;
};

/// The operator's result that `mark` is on, behind further marks.
const Value* markedBy(const Node& mark) {
  const Value* value = mark.input(0);
  while (isMark(*value->node())) value = value->node()->input(0);
  return value;
}

bool isMarkable(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::ListType) return isMarkable(*type.containedType(0));
  return type.kind() == c10::TypeKind::TensorType;
}

bool isMarked(const Value& value) {
  if (isKeep(*value.node())) return true;
  for (const auto& use : value.uses()) {
    if (isKeep(*use.user)) return true;
  }
  return false;
}

/// Walks a region backwards, so that at every node it is known what is written later.
class Checker {
 public:
  explicit Checker(Graph& graph) : order_(regionOrder(graph)), points_to_(graph) {
    for (const auto object : points_to_.escaping()) escaping_.set(object);
    for (const OrderedNode& ordered : order_.nodes) addWrites(ordered, written_);
  }

  std::vector<Finding> run() {
    for (size_t i = order_.nodes.size(); i-- > 0;) {
      check(order_.nodes[i]);
      addWrites(order_.nodes[i], written_later_);
    }
    return std::vector<Finding>(findings_.rbegin(), findings_.rend());
  }

  const RegionOrder& order() const { return order_; }

  /// After run(): nodes that would compute something else when they run again.
  bool changes(const Node* node) const { return changing_.count(node) != 0; }

 private:
  using Set = llvm::SparseBitVector<>;

  void addWrites(const OrderedNode& ordered, Set& written) const {
    // Nodes of a branch have their own turn.
    if (ordered.form == NodeForm::kBranch) return;
    for (const auto object : points_to_.writes(*ordered.node)) written.set(object);
  }

  bool reaches(const Value& value, const Set& objects) const {
    for (const auto object : points_to_.reach(&value)) {
      if (objects.test(object)) return true;
    }
    return false;
  }

  void check(const OrderedNode& ordered) {
    const Node& node = *ordered.node;
    if (isMark(node)) return;
    if (!isReplayableByForm(ordered)) {
      changing_.insert(&node);
      return;
    }
    bool reads_written = false;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (isStatisticInput(node, i)) continue;
      // What a list holds when it is read again is not what a plan saw.
      const bool list = node.input(i)->type()->kind() == c10::TypeKind::ListType;
      reads_written |= reaches(*node.input(i), list ? written_ : written_later_);
    }
    if (reads_written) changing_.insert(&node);
    for (const Value* output : node.outputs()) {
      if (!isMarkable(*output->type()) || isMarked(*output)) continue;
      const int32_t id = order_.value_ids.at(output);
      // A list is made anew from its elements; these have their own turn.
      const bool tensor = output->type()->kind() == c10::TypeKind::TensorType;
      if (tensor && reaches(*output, escaping_)) {
        findings_.push_back({id, "shares its bytes with what leaves the region"});
      } else if (reaches(*output, written_)) {
        findings_.push_back({id, "shares its bytes with what the region writes"});
      } else if (reads_written) {
        findings_.push_back({id, "is made from what the region writes"});
      }
    }
  }

  RegionOrder order_;
  PointsTo points_to_;
  Set escaping_;
  Set written_;
  Set written_later_;
  std::vector<Finding> findings_;
  std::unordered_set<const Node*> changing_;
};

std::string describe(const Value& value) {
  return locationPrefix(*value.node()) + "%" + value.debugName() + " of " +
         value.node()->kind().toQualString();
}

}  // namespace

std::vector<std::string> verifyRegion(Graph& region) {
  std::vector<std::string> lines;
  Checker checker(region);
  for (const OrderedNode& ordered : checker.order().nodes) {
    if (!isKeep(*ordered.node)) continue;
    for (const Value* input : ordered.node->inputs()) {
      if (isMarkable(*input->type())) continue;
      lines.push_back(describe(*input) + " is marked " + kKeepMark + ", but it is a " +
                      input->type()->repr_str() + ": only tensors and lists of tensors can be");
    }
  }
  const std::vector<Finding> findings = checker.run();
  for (const OrderedNode& ordered : checker.order().nodes) {
    if (!isRegenerate(*ordered.node)) continue;
    const Value* marked = markedBy(*ordered.node);
    if (!checker.changes(marked->node())) continue;
    lines.push_back(describe(*marked) + " is marked " + kRegenerateMark +
                    ", but its operator would not do the same again");
  }
  for (const Finding& finding : findings) {
    const Value& value = *checker.order().values[finding.value];
    lines.push_back(describe(value) + " may be recomputed, but " + finding.reason + ": mark it " +
                    kKeepMark);
  }
  return lines;
}

std::vector<int32_t> valuesToRegenerate(Graph& region) {
  Checker checker(region);
  checker.run();
  std::vector<int32_t> values;
  for (const OrderedNode& ordered : checker.order().nodes) {
    if (!isRegenerate(*ordered.node)) continue;
    const Value* marked = markedBy(*ordered.node);
    if (!checker.changes(marked->node())) values.push_back(checker.order().value_ids.at(marked));
  }
  return values;
}

std::vector<int32_t> valuesToKeepAnyway(Graph& region) {
  std::vector<int32_t> values;
  for (const Finding& finding : Checker(region).run()) values.push_back(finding.value);
  return values;
}

}  // namespace remat::ir
