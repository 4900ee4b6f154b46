#include "runtime/region_program.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cctype>

#include "ir/location.h"
#include "ir/mark_nodes.h"
#include "ir/names.h"
#include "ir/replay_safety.h"
#include "ir/verifier.h"
#include "runtime/liveness.h"
#include "runtime/node_operation.h"

namespace remat::runtime {
namespace {

using ir::NodeForm;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool isKind(const Node& node, const char* name) {
  return node.kind() == c10::Symbol::fromQualString(name);
}

/// What `value` is called: a mark takes over the name of what it marks.
std::string nameOf(const Value& value) {
  for (const auto& use : value.uses()) {
    if (!value.hasDebugName() && ir::isMark(*use.user)) {
      return nameOf(*use.user->output());
    }
  }
  return value.debugName();
}

/// `layer1.0.conv1 (resnet.py:154)`. A loaded region knows no module paths; its values are named by
/// them.
std::string describe(const Node& node) {
  const ir::Location location = ir::locate(node);
  std::string text = location.module_path;
  if (text.empty() && !node.outputs().empty()) {
    text = nameOf(*node.outputs()[0]);
  }
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) {
    text = node.kind().toQualString();
  }
  return location.source.empty() ? text : text + " (" + location.source + ")";
}

/// Whether no mark can be on `value` though it holds tensors: a tuple, an optional tensor, a list
/// of such or of lists. The verifier and plans speak of what can be marked only.
bool isUnmarkable(const Value& value) {
  const auto* list = value.type()->castRaw<c10::ListType>();
  const c10::Type& held = list != nullptr ? *list->getElementType() : *value.type();
  return ir::holdsTensors(held) && held.kind() != c10::TypeKind::TensorType;
}

/// Whether `value` is a list that somebody may write, or hand on to who does: made again it would
/// be the list as it was before.
bool isWritableList(const Value& value) {
  return value.type()->kind() == c10::TypeKind::ListType &&
         std::any_of(value.uses().begin(), value.uses().end(), [](const torch::jit::Use& use) {
           const auto* schema = use.user->maybeSchema();
           return !use.user->kind().is_aten() || schema == nullptr || schema->is_mutable();
         });
}

/// Whether `node` only puts values into containers or takes them out.
bool onlyRearranges(const Node& node) {
  return node.kind().is_prim() || node.kind() == c10::aten::__getitem__;
}

/// Ops that look at whether gradients are on or required, and then take a kernel that rounds
/// differently: oneDNN's LSTM; attention, for its mask; matmul, which folds a batch or does not.
bool choosesKernelByGradients(const Node& node) {
  if (isKind(node, ir::kAttentionWeights) || isKind(node, ir::kAttention)) return true;
  switch (node.kind()) {
    case c10::aten::lstm:
    case c10::aten::gru:
    case c10::aten::rnn_tanh:
    case c10::aten::rnn_relu:
    case c10::aten::matmul:
    case c10::aten::linear:
    case c10::aten::scaled_dot_product_attention:
      return true;
    default:
      return false;
  }
}

class Compiler {
 public:
  explicit Compiler(const Graph& graph) : program_(std::make_shared<RegionProgram>()) {
    // Graph::copy only reads.
    program_->graph = const_cast<Graph&>(graph).copy();
    order_ = ir::regionOrder(*program_->graph);
  }

  std::shared_ptr<const RegionProgram> compile() {
    numberValues();
    program_->nodes.resize(order_.nodes.size());
    for (size_t i = 0; i < order_.nodes.size(); ++i) {
      compileNode(i);
    }
    program_->body = blockNodes(program_->graph->block());
    for (Value* input : program_->graph->inputs()) {
      program_->inputs.push_back(id(input));
    }
    for (Value* output : program_->graph->outputs()) {
      program_->outputs.push_back(id(output));
    }
    decideKept();
    addInternals();
    addDeaths(*program_);
    addBoundaries(*program_);
    describeValues();
    return program_;
  }

 private:
  int32_t id(const Value* value) const { return alias_[order_.value_ids.at(value)]; }

  void numberValues() {
    const size_t count = order_.values.size();
    auto& p = *program_;
    alias_.resize(count);
    p.constants.resize(count);
    p.is_constant.assign(count, 0);
    p.kept.assign(count, 0);
    p.dropped.assign(count, 0);
    p.tensor.assign(count, 0);
    p.producer.assign(count, -1);
    p.names.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const Value* value = order_.values[i];
      alias_[i] = static_cast<int32_t>(i);
      p.names[i] = nameOf(*value);
      p.tensor[i] = ir::holdsTensors(*value->type()) ? 1 : 0;
      if (ir::isMark(*value->node())) {
        alias_[i] = alias_[order_.value_ids.at(value->node()->input(0))];
      }
      if (ir::isKeep(*value->node())) {
        mark(alias_[i]);
      }
      if (ir::isDrop(*value->node())) {
        p.dropped[alias_[i]] = 1;
      }
    }
  }

  /// A mark on what a branch returns is a mark on what either arm returns.
  void mark(int32_t value) {
    program_->kept[value] = 1;
    const Value* marked = order_.values[value];
    const Node* node = marked->node();
    if (node->kind() != c10::prim::If) {
      return;
    }
    for (const Block* block : node->blocks()) {
      const Value* source = block->outputs()[marked->offset()];
      const auto found = order_.value_ids.find(source);
      if (found != order_.value_ids.end()) {
        mark(alias_[found->second]);
      }
    }
  }

  std::vector<int32_t> blockNodes(Block* block) const {
    std::vector<int32_t> result;
    for (Node* node : block->nodes()) {
      const int32_t node_id = order_.node_ids.at(node);
      const auto form = order_.nodes[node_id].form;
      if (form != NodeForm::kInside && form != NodeForm::kConstant) {
        result.push_back(node_id);
      }
    }
    return result;
  }

  void compileNode(size_t index) {
    const auto& ordered = order_.nodes[index];
    Node* node = ordered.node;
    ProgramNode& out = program_->nodes[index];
    out.form = ordered.form;
    out.op = node->kind().toQualString();
    out.where = describe(*node);
    out.inside = "inside " + out.where;
    if (ordered.form == NodeForm::kInside) {
      return;
    }
    for (Value* output : node->outputs()) {
      out.outputs.push_back(id(output));
    }
    if (ordered.form == NodeForm::kConstant) {
      const int32_t value = out.outputs.at(0);
      program_->constants[value] = *torch::jit::toIValue(node->output());
      program_->is_constant[value] = 1;
      return;
    }
    for (Value* input : node->inputs()) {
      out.inputs.push_back(id(input));
    }
    out.is_mark = ir::isMark(*node);
    if (out.is_mark) return;
    for (int32_t output : out.outputs) {
      program_->producer[output] = static_cast<int32_t>(index);
    }
    if (ordered.form == NodeForm::kBranch) {
      compileBranch(node, out);
    } else {
      compileCall(index, node, out);
    }
  }

  void compileBranch(Node* node, ProgramNode& out) const {
    for (int arm = 0; arm < 2; ++arm) {
      Block* block = node->blocks()[arm];
      out.arms[arm].nodes = blockNodes(block);
      for (Value* output : block->outputs()) {
        out.arms[arm].outputs.push_back(id(output));
      }
    }
  }

  void compileCall(size_t index, Node* node, ProgramNode& out) {
    out.replayable = ir::isReplayableByForm(order_.nodes[index]);
    out.is_dropout_mask = isKind(*node, ir::kDropoutMask);
    if (node->kind() == c10::aten::batch_norm || node->kind() == c10::aten::instance_norm) {
      out.hidden_state = HiddenState::kRunningStatistics;
    }
    out.kernel_by_gradients = choosesKernelByGradients(*node);
    if (node->kind() == c10::prim::GetAttr) {
      out.is_get_attribute = true;
      out.attribute = node->s(c10::attr::name);
    } else if (hasOperation(order_.nodes[index])) {
      out.operation = operations_.of(*node);
      out.writes = node->schema().is_mutable();
    } else {
      compileThroughInterpreter(index, out);
    }
  }

  /// A node without an operation of its own, and all that is inside of a `with` statement.
  void compileThroughInterpreter(size_t index, ProgramNode& out) {
    std::vector<Node*> nodes{order_.nodes[index].node};
    for (size_t i = index + 1; i < order_.nodes.size() && order_.nodes[i].form == NodeForm::kInside;
         ++i) {
      nodes.push_back(order_.nodes[i].node);
    }
    const InterpretedNodes interpreted = interpretedNodes(nodes);
    out.inputs.clear();
    for (const Value* input : interpreted.inputs) out.inputs.push_back(id(input));
    out.outputs.clear();
    for (const Value* output : interpreted.outputs) {
      out.outputs.push_back(id(output));
      program_->producer[id(output)] = static_cast<int32_t>(index);
    }
    out.code = std::make_shared<torch::jit::Code>(interpreted.graph, "remat");
  }

  void decideKept() {
    auto& p = *program_;
    for (const int32_t value : ir::valuesToKeepAnyway(*p.graph)) {
      p.kept[alias_[value]] = 1;
    }
    for (size_t v = 0; v < p.valueCount(); ++v) {
      const int32_t producer = p.producer[v];
      const bool from_branch = producer >= 0 && p.nodes[producer].form == NodeForm::kBranch;
      const Value& value = *order_.values[v];
      if (p.tensor[v] == 0 || producer < 0 || (!from_branch && !p.nodes[producer].replayable) ||
          (isUnmarkable(value) && (isWritableList(value) || !onlyRearranges(*value.node())))) {
        p.kept[v] = 1;
      }
    }
  }

  void addInternals() {
    auto& p = *program_;
    for (const int32_t value : ir::valuesToRegenerate(*p.graph)) {
      ProgramNode& node = p.nodes[p.producer[alias_[value]]];
      if (!node.replayable || node.is_dropout_mask || node.internals >= 0) {
        continue;
      }
      node.internals = static_cast<int32_t>(p.valueCount());
      p.names.push_back("what " + p.names[alias_[value]] + "'s operator saved");
      p.producer.push_back(p.producer[alias_[value]]);
      p.constants.emplace_back();
      p.is_constant.push_back(0);
      p.tensor.push_back(1);
      p.kept.push_back(0);
      p.dropped.push_back(0);
    }
    for (ProgramNode& node : p.nodes) {
      node.made = node.outputs;
      if (node.internals >= 0) {
        node.made.push_back(node.internals);
      }
    }
  }

  void describeValues() {
    auto& p = *program_;
    for (size_t v = 0; v < p.valueCount(); ++v) {
      const int32_t producer = p.producer[v];
      p.described.push_back(p.names[v] + (producer < 0
                                              ? " (an argument)"
                                              : " (made at " + p.nodes[producer].where + ")"));
    }
  }

  std::shared_ptr<RegionProgram> program_;
  ir::RegionOrder order_;
  std::vector<int32_t> alias_;  // value id → id of the value it renames
  Operations operations_;
};

}  // namespace

std::shared_ptr<const RegionProgram> compileRegion(const torch::jit::Graph& graph) {
  return Compiler(graph).compile();
}

}  // namespace remat::runtime
