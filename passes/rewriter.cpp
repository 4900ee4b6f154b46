#include "passes/rewriter.h"

#include <llvm/ADT/SetVector.h>
#include <llvm/ADT/SmallVector.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "ir/mark_nodes.h"
#include "ir/names.h"
#include "ir/region_order.h"
#include "ir/verifier.h"
#include "passes/anchor_draws.h"

namespace remat {
namespace {

using ir::NodeForm;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool isTensor(const c10::Type& type) { return type.kind() == c10::TypeKind::TensorType; }

bool isTensorList(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType && isTensor(*type.containedType(0));
}

/// The values to mark, in program order.
class Marks {
 public:
  Marks(Graph& graph, const ir::RegionOrder& order) : graph_(graph), order_(order) {}

  void add(int32_t id) {
    TORCH_CHECK(id >= 0 && static_cast<size_t>(id) < order_.values.size(), "value ", id,
                " is not a value of the region, which has ", order_.values.size(),
                ": the ids are those of regionOrder on the same graph");
    Value* value = order_.values[id];
    if (!isMarkable(*value)) return;
    ids_.insert(id);
  }

  llvm::SmallVector<int32_t, 0> inOrder() const {
    llvm::SmallVector<int32_t, 0> ids(ids_.begin(), ids_.end());
    llvm::sort(ids);
    return ids;
  }

 private:
  bool isMarkable(const Value& value) const {
    const auto node = order_.node_ids.find(value.node());
    if (node == order_.node_ids.end()) return false;  // an argument
    const NodeForm form = order_.nodes[node->second].form;
    if (form == NodeForm::kConstant || form == NodeForm::kInside || ir::isKeep(*value.node()))
      return false;
    return isTensor(*value.type()) || isTensorList(*value.type());
  }

  Graph& graph_;
  const ir::RegionOrder& order_;
  llvm::SetVector<int32_t> ids_;
};

/// Puts a mark on `value`, which takes over its uses and its name.
void mark(Graph& graph, Value* value, const char* kind) {
  Node* keep = graph.create(c10::Symbol::fromQualString(kind), {value});
  keep->insertAfter(value->node());
  keep->copyMetadata(value->node());
  Value* kept = keep->output();
  kept->setType(value->type());
  value->replaceAllUsesWith(kept);
  keep->replaceInput(0, value);
  if (!value->hasDebugName()) return;
  const std::string name = value->debugName();
  value->setDebugName("");
  kept->setDebugName(name);
}

/// Marks those of the values that can be marked; ids by the graph's present order. Returns whether
/// there were any.
bool markAll(Graph& region, const std::vector<int32_t>& ids) {
  const ir::RegionOrder order = ir::regionOrder(region);
  Marks marks(region, order);
  for (const int32_t id : ids) marks.add(id);
  const auto markable = marks.inOrder();
  for (const int32_t id : markable) mark(region, order.values[id], ir::kKeepMark);
  return !markable.empty();
}

/// What `value` is called behind the mark on it, if there is one.
Value* behindMarks(Value* value) {
  for (const auto& use : value->uses()) {
    if (ir::isKeep(*use.user) || ir::isDrop(*use.user)) return use.user->output();
  }
  return value;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? " " : "; ") + line;
  return text;
}

}  // namespace

std::shared_ptr<Graph> rewriteRegion(const std::shared_ptr<Graph>& prepared,
                                     const RegionMarks& marks) {
  auto region = prepared->copy();
  std::vector<int32_t> kept;
  std::vector<Value*> dropped;
  std::vector<Value*> regenerated;
  {
    const ir::RegionOrder order = ir::regionOrder(*region);
    // What a branch returns was made in an arm, and is decided on there.
    std::copy_if(marks.keep.begin(), marks.keep.end(), std::back_inserter(kept),
                 [&](int32_t id) { return order.values.at(id)->node()->kind() != c10::prim::If; });
    Marks markable(*region, order);
    for (const int32_t id : marks.drop) markable.add(id);
    for (const int32_t id : markable.inOrder()) dropped.push_back(order.values[id]);
    for (const int32_t id : marks.regenerate) {
      Value* value = order.values.at(id);
      if (isTensor(*value->type())) regenerated.push_back(value);
    }
  }
  markAll(*region, kept);
  for (Value* value : dropped) {
    if (behindMarks(value) == value) mark(*region, value, ir::kDropMark);
  }
  // A mark on a list is one more name for what it holds, which can put further values at risk.
  for (std::vector<int32_t> more = ir::valuesToKeepAnyway(*region);
       !more.empty() && markAll(*region, more); more = ir::valuesToKeepAnyway(*region)) {
  }

  for (Value* value : regenerated) mark(*region, behindMarks(value), ir::kRegenerateMark);

  anchorDraws(*region);
  region->lint();
  const std::vector<std::string> violations = ir::verifyRegion(*region);
  TORCH_CHECK(violations.empty(), "the rewritten region is not valid:", joined(violations));
  return region;
}

}  // namespace remat
