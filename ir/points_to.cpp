#include "ir/points_to.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SparseBitVector.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "ir/attribute_identity.h"
#include "ir/op_effects.h"
#include "ir/reference_types.h"

namespace remat::ir {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
using Set = llvm::SparseBitVector<>;

bool isModule(const Value& value) {
  const auto type = value.type()->cast<c10::ClassType>();
  return type && type->is_module();
}

PointsTo::Objects sorted(const Set& set) {
  PointsTo::Objects objects;
  for (const auto object : set) objects.push_back(static_cast<PointsTo::Object>(object));
  return objects;
}

}  // namespace

class PointsToBuilder {
 public:
  PointsToBuilder(Graph& graph, const torch::jit::Module* module) : graph_(graph), module_(module) {
    unknown_ = newObject();
    arguments_ = newObject();
    contents_[unknown_].set(unknown_);
    contents_[arguments_].set(arguments_);
    outside_.set(unknown_);
    outside_.set(arguments_);
  }

  void build(PointsTo& result) {
    addInputs();
    do {
      changed_ = false;
      visit(*graph_.block());
    } while (changed_);
    addEscaping();
    for (auto& [value, set] : pointees_) {
      result.pointees_[value] = sorted(set);
      result.reach_[value] = sorted(closure(set));
    }
    result.paths_ = paths_;
    result.escaping_ = sorted(escaping_);
    result.outside_ = sorted(outside_);
  }

 private:
  PointsTo::Object newObject(const std::string& path = "") {
    paths_.push_back(path);
    contents_.emplace_back();
    return static_cast<PointsTo::Object>(paths_.size() - 1);
  }

  /// The object that `node` makes as its output `offset`; `inner` is what a fresh container holds.
  PointsTo::Object made(const Node* node, size_t offset, bool inner = false) {
    auto [entry, is_new] = made_.try_emplace({node, offset * 2 + (inner ? 1 : 0)}, 0);
    if (is_new) entry->second = newObject();
    return entry->second;
  }

  void addInputs() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Value* input = graph_.inputs()[i];
      if (i == 0 && isModule(*input)) {
        self_ = newObject();
        pointees_[input].set(self_);
      } else if (isReference(*input->type())) {
        pointees_[input].set(arguments_);
      }
    }
  }

  void visit(Block& block) {
    for (Node* node : block.nodes()) {
      for (Block* inner : node->blocks()) visit(*inner);
      visit(*node);
    }
  }

  void visit(Node& node) {
    switch (node.kind()) {
      case c10::prim::Constant:
      case c10::prim::ListConstruct:
      case c10::prim::TupleConstruct:
      case c10::prim::DictConstruct:
        return construct(node);
      case c10::prim::TupleUnpack:
        return unpackTuple(node);
      case c10::prim::ListUnpack:
      case c10::prim::TupleIndex:
      case c10::prim::TupleSlice:
      case c10::aten::__getitem__:
        return extract(node);
      case c10::prim::unchecked_cast:
      case c10::prim::unchecked_unwrap_optional:
      case c10::aten::_unwrap_optional:
        return flow(node.output(), pointees_[node.input(0)]);
      case c10::prim::If:
        return visitIf(node);
      case c10::prim::Loop:
        return visitLoop(node);
      case c10::prim::GetAttr:
        return getAttribute(node);
      case c10::prim::SetAttr:
        return setAttribute(node);
      case c10::prim::Enter:
      case c10::prim::CreateObject:
        return makeUnknown(node);
      default:
        return visitOp(node);
    }
  }

  void flow(const Value* value, const Set& set) {
    if (!isReference(*value->type())) return;
    changed_ |= pointees_[value] |= set;
  }

  void fill(PointsTo::Object container, const Set& set) { changed_ |= contents_[container] |= set; }

  void construct(Node& node) {
    if (!isReference(*node.output()->type())) return;
    const PointsTo::Object object = made(&node, 0);
    Set self;
    self.set(object);
    flow(node.output(), self);
    for (const Value* input : node.inputs()) {
      const Set inputs = pointees_[input];
      fill(object, inputs);
    }
  }

  Set contentsOf(const Set& containers) const {
    Set all;
    for (const auto object : containers) all |= contents_[object];
    return all;
  }

  void extract(Node& node) {
    const Set all = contentsOf(pointees_[node.input(0)]);
    for (const Value* output : node.outputs()) flow(output, all);
    // A slice is a new container.
    if (node.kind() == c10::prim::TupleSlice) flow(node.output(), pointees_[node.input(0)]);
  }

  void unpackTuple(Node& node) {
    const Node* tuple = node.input()->node();
    if (tuple->kind() != c10::prim::TupleConstruct) return extract(node);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const Set element = pointees_[tuple->inputs()[i]];
      flow(node.outputs()[i], element);
    }
  }

  void visitIf(Node& node) {
    for (Block* block : node.blocks()) {
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        const Set result = pointees_[block->outputs()[i]];
        flow(node.outputs()[i], result);
      }
    }
  }

  void visitLoop(Node& node) {
    Block* body = node.blocks()[0];
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      Set carried = pointees_[node.inputs()[i + 2]];
      carried |= pointees_[body->outputs()[i + 1]];
      flow(body->inputs()[i + 1], carried);
      flow(node.outputs()[i], carried);
    }
  }

  void getAttribute(Node& node) {
    const Set owners = pointees_[node.input(0)];
    Set result;
    for (const auto owner : owners) {
      if (!hasAttributes(owner)) {
        result.set(unknown_);
        continue;
      }
      const auto object = attribute(owner, node.s(c10::attr::name), *node.output()->type());
      result.set(object);
      result |= bound_[object];
    }
    result |= bound_[unknown_];
    flow(node.output(), result);
  }

  void setAttribute(Node& node) {
    const Set owners = pointees_[node.input(0)];
    const Set value = pointees_[node.input(1)];
    for (const auto owner : owners) {
      const auto object = hasAttributes(owner)
                              ? attribute(owner, node.s(c10::attr::name), *node.input(1)->type())
                              : unknown_;
      changed_ |= bound_[object] |= value;
    }
    escaping_ |= value;
  }

  bool hasAttributes(PointsTo::Object object) const {
    return object == self_ || !paths_[object].empty();
  }

  PointsTo::Object attribute(PointsTo::Object owner, const std::string& name,
                             const c10::Type& type) {
    const std::string path = paths_[owner].empty() ? name : paths_[owner] + "." + name;
    const void* identity = module_ == nullptr ? nullptr : attributeIdentity(*module_, path);
    if (identity != nullptr) {
      const auto known = by_identity_.find(identity);
      if (known != by_identity_.end()) return known->second;
    }
    auto [entry, is_new] = attributes_.try_emplace(path, 0);
    if (is_new) {
      entry->second = newObject(path);
      outside_.set(entry->second);
      if (isContainer(type)) {
        const auto elements = newObject(path);
        outside_.set(elements);
        contents_[elements].set(elements);
        contents_[entry->second].set(elements);
      }
      if (identity != nullptr) by_identity_[identity] = entry->second;
      changed_ = true;
    }
    return entry->second;
  }

  void makeUnknown(Node& node) {
    Set unknown;
    unknown.set(unknown_);
    for (const Value* output : node.outputs()) flow(output, unknown);
  }

  void visitOp(Node& node) {
    Set inputs;
    for (const Value* input : node.inputs()) inputs |= pointees_[input];
    if (isUnknownCall(node)) {
      const Set all = closure(inputs);
      escaping_ |= all;
      makeUnknown(node);
      for (const Value* output : node.outputs()) flow(output, all);
      return;
    }
    // append, insert, extend, update, _set_item, …: what goes in is an argument or an argument's
    // contents.
    for (const Value* written : writtenInputs(node)) {
      if (!isContainer(*written->type())) continue;
      Set added;
      for (const Value* input : node.inputs()) {
        if (input != written) added |= pointees_[input];
      }
      added |= contentsOf(added);
      const Set containers = pointees_[written];
      for (const auto container : containers) fill(container, added);
    }
    Shared shared;
    for (const Value* source : sharedInputs(node)) {
      shared.any = true;
      shared.everything |= pointees_[source];
      if (isContainer(*source->type())) shared.containers |= pointees_[source];
    }
    shared.everything = closure(shared.everything);
    for (size_t i = 0; i < node.outputs().size(); ++i) makeResult(node, i, shared);
  }

  /// What the results of an op may share with its inputs.
  struct Shared {
    bool any = false;
    Set everything;  ///< contents of containers included
    Set containers;  ///< the containers themselves
  };

  void makeResult(Node& node, size_t offset, const Shared& shared) {
    const Value* output = node.outputs()[offset];
    if (!isReference(*output->type())) return;
    Set self;
    if (!isContainer(*output->type())) {
      if (shared.any) return flow(output, shared.everything);
      self.set(made(&node, offset));
      return flow(output, self);
    }
    const auto container = made(&node, offset);
    self.set(container);
    Set elements = shared.everything;
    if (!shared.any) elements.set(made(&node, offset, /*inner=*/true));
    fill(container, elements);
    flow(output, self);
    // A container that is handed through is still that container.
    flow(output, shared.containers);
  }

  Set closure(Set set) const {
    while (set |= contentsOf(set)) {
    }
    return set;
  }

  void addEscaping() {
    for (const Value* output : graph_.outputs()) {
      const auto found = pointees_.find(output);
      if (found != pointees_.end()) escaping_ |= found->second;
    }
    // What was put into containers that came from outside.
    for (const auto object : outside_) {
      Set inside = contents_[object];
      inside.intersectWithComplement(outside_);
      escaping_ |= inside;
    }
    escaping_ = closure(escaping_);
  }

  Graph& graph_;
  const torch::jit::Module* module_;
  PointsTo::Object unknown_ = 0;
  PointsTo::Object arguments_ = 0;
  PointsTo::Object self_ = -1;
  bool changed_ = false;
  std::vector<std::string> paths_;         // by object
  std::vector<Set> contents_;              // by object: what a container holds
  std::map<PointsTo::Object, Set> bound_;  // by attribute: what is set to it
  std::map<std::string, PointsTo::Object> attributes_;
  llvm::DenseMap<const void*, PointsTo::Object> by_identity_;
  std::map<std::pair<const Node*, size_t>, PointsTo::Object> made_;
  std::unordered_map<const Value*, Set> pointees_;
  Set escaping_;
  Set outside_;
};

PointsTo::PointsTo(Graph& graph, const torch::jit::Module* module) {
  PointsToBuilder(graph, module).build(*this);
}

const PointsTo::Objects& PointsTo::reach(const Value* value) const {
  static const Objects kNothing;
  const auto found = reach_.find(value);
  return found == reach_.end() ? kNothing : found->second;
}

PointsTo::Objects PointsTo::writes(const Node& node) const {
  Objects all;
  const auto add = [&](const Objects& objects) {
    all.insert(all.end(), objects.begin(), objects.end());
  };
  if (isUnknownCall(node)) {
    // A custom op sees what it is given; code of the model may hold objects.
    bool sees_objects = node.kind().is_prim();
    for (const Value* input : node.inputs()) {
      add(reach(input));
      sees_objects |= mayHoldObjects(*input->type());
    }
    if (sees_objects) add(outside_);
  }
  for (const Value* written : writtenInputs(node)) {
    // Of a list's write only the list itself is written, unless the op writes its elements.
    const bool container =
        written->type()->kind() == c10::TypeKind::DictType ||
        (written->type()->kind() == c10::TypeKind::ListType && node.kind().is_aten() &&
         std::string(node.kind().toUnqualString()).rfind("_foreach", 0) != 0);
    const auto found = pointees_.find(written);
    if (found != pointees_.end()) add(container ? found->second : reach(written));
  }
  for (const Value* written : writtenStatistics(node)) add(reach(written));
  for (const Block* block : node.blocks()) {
    for (const Node* inner : block->nodes()) add(writes(*inner));
  }
  std::sort(all.begin(), all.end());
  // 0 is the unknown: whatever came from outside may be behind it.
  if (!all.empty() && all.front() == 0) {
    add(outside_);
    std::sort(all.begin(), all.end());
  }
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace remat::ir
