#include "ir/method_table.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <unordered_map>
#include <vector>

namespace remat::ir {
namespace {

using torch::jit::Function;
using torch::jit::Module;

using TypeMap = std::function<c10::TypePtr(c10::TypePtr)>;

/// Replaces `from` wherever it occurs in a type: also inside lists, tuples and optionals.
TypeMap replacing(const c10::TypePtr& from, const c10::TypePtr& to) {
  return [from, to](const c10::TypePtr& type) -> c10::TypePtr {
    const std::function<c10::TypePtr(const c10::TypePtr&)> map =
        [&](const c10::TypePtr& t) -> c10::TypePtr {
      if (t == from) return to;
      // Class types hold themselves in their attributes; they are not walked.
      if (t->kind() == c10::TypeKind::ClassType || t->containedTypes().empty()) return t;
      std::vector<c10::TypePtr> inner;
      bool changed = false;
      for (const auto& contained : t->containedTypes()) {
        inner.push_back(map(contained));
        changed |= inner.back() != contained;
      }
      return changed ? t->withContained(inner) : t;
    };
    return map(type);
  };
}

Function* makeFunction(torch::jit::CompilationUnit& unit, const c10::QualifiedName& name,
                       const std::shared_ptr<torch::jit::Graph>& graph,
                       const c10::FunctionSchema* schema) {
  if (unit.find_function(name) != nullptr) unit.unsafeRemoveMethod(name);
  Function* made = unit.create_function(name, graph);
  if (schema != nullptr) made->setSchema(*schema);
  return made;
}

/// Copies functions of one type to another, each once.
class FunctionCopier {
 public:
  FunctionCopier(torch::jit::CompilationUnit& unit, const c10::ClassTypePtr& from,
                 const c10::ClassTypePtr& to)
      : unit_(unit), to_(to), map_(replacing(from, to)) {}

  Function* copy(Function* function) {
    if (function == nullptr) return nullptr;
    Function*& made = made_[function];
    if (made != nullptr) return made;
    function->ensure_defined();
    if (!function->isGraphFunction()) return made = function;
    auto graph = torch::jit::toGraphFunction(*function).graph()->copy();
    graph->remapTypes(map_);
    const auto schema = function->getSchema().cloneWithRemappedTypes(map_);
    return made = makeFunction(unit_, c10::QualifiedName(*to_->name(), function->name()), graph,
                               &schema);
  }

 private:
  torch::jit::CompilationUnit& unit_;
  c10::ClassTypePtr to_;
  TypeMap map_;
  std::unordered_map<Function*, Function*> made_;
};

}  // namespace

void putMethod(Module& module, const std::string& name,
               const std::shared_ptr<torch::jit::Graph>& graph, const c10::FunctionSchema* schema) {
  const auto type = module.type();
  // The unit destroys the function that makeFunction replaces: its place is noted and its type's
  // entry gone before.
  std::vector<Function*> methods = type->methods();
  size_t place = methods.size();
  for (size_t i = 0; i < methods.size(); ++i) {
    if (methods[i]->name() == name) place = i;
    type->unsafeRemoveMethod(methods[i]->name());
  }
  Function* made = makeFunction(*module._ivalue()->compilation_unit(),
                                c10::QualifiedName(*type->name(), name), graph, schema);
  if (place == methods.size()) {
    methods.push_back(made);
  } else {
    methods[place] = made;
  }
  for (Function* method : methods) type->addMethod(method);
}

void removeMethod(Module& module, const std::string& name) {
  const auto type = module.type();
  type->unsafeRemoveMethod(name);
  module._ivalue()->compilation_unit()->unsafeRemoveMethod(c10::QualifiedName(*type->name(), name));
}

c10::ClassTypePtr copyType(const Module& module) {
  const auto type = module.type();
  const auto unit = module._ivalue()->compilation_unit();
  auto copy = c10::ClassType::create(unit->mangle(*type->name()), unit, type->is_module(),
                                     type->doc_string());
  unit->register_type(copy);
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    copy->addAttribute(type->getAttributeName(i), type->getAttribute(i), type->is_parameter(i),
                       type->is_buffer(i));
  }
  for (size_t i = 0; i < type->numConstants(); ++i) {
    copy->addConstant(type->getConstantName(i), type->getConstant(i));
  }
  FunctionCopier functions(*unit, type, copy);
  for (Function* method : type->methods()) copy->addMethod(functions.copy(method));
  for (Function* hook : type->getForwardPreHooks()) copy->addForwardPreHook(functions.copy(hook));
  for (Function* hook : type->getForwardHooks()) copy->addForwardHook(functions.copy(hook));
  for (const auto& property : type->properties()) {
    copy->addProperty(property.name, functions.copy(property.getter),
                      functions.copy(property.setter));
  }
  return copy;
}

std::shared_ptr<torch::jit::Graph> withTypeReplaced(torch::jit::Graph& graph,
                                                    const c10::TypePtr& from,
                                                    const c10::TypePtr& to) {
  auto copy = graph.copy();
  if (from != to) copy->remapTypes(replacing(from, to));
  return copy;
}

}  // namespace remat::ir
