#include "passes/frozen_layers.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/region_order.h"
#include "passes/value_tensors.h"

namespace remat {
namespace {

using torch::jit::Node;
using torch::jit::Value;

enum class Kind : uint8_t {
  kNeutral,  ///< depends on no parameter and on nothing that requires grad
  kFrozen,
  kLearns,
};

class FrozenNodes {
 public:
  FrozenNodes(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
              torch::jit::Graph& graph)
      : order_(ir::regionOrder(graph)) {
    for (const at::Tensor& parameter : module.parameters()) {
      parameters_.insert(parameter.unsafeGetTensorImpl());
    }
    attributes_[graph.inputs().at(0)] = module._ivalue();
    for (size_t i = 0; i < inputs.size() && i + 1 < graph.inputs().size(); ++i) {
      const std::vector<at::Tensor> tensors = tensorsOf(inputs[i]);
      const bool learns = std::any_of(tensors.begin(), tensors.end(),
                                      [](const at::Tensor& t) { return t.requires_grad(); });
      kinds_[graph.inputs()[i + 1]] = learns ? Kind::kLearns : Kind::kNeutral;
    }
  }

  std::vector<char> run() {
    std::vector<char> frozen;
    for (const ir::OrderedNode& ordered : order_.nodes) {
      const Kind kind = visit(*ordered.node);
      for (const Value* output : ordered.node->outputs()) kinds_[output] = kind;
      frozen.push_back(kind == Kind::kFrozen && ordered.node->blocks().empty() ? 1 : 0);
    }
    return frozen;
  }

 private:
  Kind kindOf(const Value& value) const {
    const auto found = kinds_.find(&value);
    return found == kinds_.end() ? Kind::kNeutral : found->second;
  }

  Kind visit(const Node& node) {
    // What happens inside of blocks isn't known here: branches come before their nodes, loops are
    // one node.
    if (!node.blocks().empty()) return Kind::kLearns;
    if (node.kind() == c10::prim::GetAttr) return attributeKind(node);
    Kind kind = Kind::kNeutral;
    for (const Value* input : node.inputs()) kind = std::max(kind, kindOf(*input));
    return kind;
  }

  Kind attributeKind(const Node& node) {
    const auto owner = attributes_.find(node.input(0));
    if (owner == attributes_.end() || !owner->second.isObject()) return Kind::kLearns;
    const c10::IValue attribute = owner->second.toObjectRef().getAttr(node.s(c10::attr::name));
    attributes_[node.output()] = attribute;
    Kind kind = Kind::kNeutral;
    for (const at::Tensor& tensor :
         attribute.isObject() ? std::vector<at::Tensor>() : tensorsOf(attribute)) {
      const bool parameter = parameters_.count(tensor.unsafeGetTensorImpl()) != 0;
      kind = std::max(kind, tensor.requires_grad() ? Kind::kLearns
                            : parameter            ? Kind::kFrozen
                                                   : Kind::kNeutral);
    }
    return kind;
  }

  ir::RegionOrder order_;
  std::unordered_set<const c10::TensorImpl*> parameters_;
  std::unordered_map<const Value*, c10::IValue> attributes_;  ///< what GetAttr reads
  std::unordered_map<const Value*, Kind> kinds_;
};

}  // namespace

std::vector<char> frozenNodes(torch::jit::Graph& graph, const torch::jit::Module& module,
                              const std::vector<c10::IValue>& inputs) {
  return FrozenNodes(module, inputs, graph).run();
}

}  // namespace remat
