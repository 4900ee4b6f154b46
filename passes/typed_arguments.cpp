#include "passes/typed_arguments.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>

#include <functional>
#include <string>

#include "passes/remat.h"

namespace remat {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw RematError(what + " " + why +
                   ": run the model a few times with gradients off before, or give arguments");
}

at::Tensor tensorOf(const c10::TypePtr& type, const std::string& what) {
  const auto tensor = type->cast<c10::TensorType>();
  const auto sizes = tensor ? tensor->sizes().concrete_sizes() : std::nullopt;
  if (!sizes || !tensor->scalarType() || !tensor->device()) {
    refuse(what,
           "has the type " + type->repr_str() + ", which doesn't say sizes, dtype and device");
  }
  const at::NoGradGuard no_grad;
  at::Tensor made = at::zeros(*sizes, at::TensorOptions(*tensor->scalarType()));
  if (made.is_floating_point() || made.is_complex()) {
    constexpr double kDeviation = 0.02;
    // A generator of its own: the program's random numbers stay as they are.
    made.normal_(0, kDeviation,
                 at::make_generator<at::CPUGeneratorImpl>(std::hash<std::string>()(what)));
  }
  made = made.to(*tensor->device());
  return made.requires_grad_(tensor->requiresGrad().value_or(false));
}

c10::IValue valueOf(const c10::TypePtr& type, const std::string& what) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return tensorOf(type, what);
    case c10::TypeKind::IntType:
      return 0;
    case c10::TypeKind::FloatType:
      return 0.0;
    case c10::TypeKind::BoolType:
      return false;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::NoneType:
      return {};
    default:
      refuse(what, "has the type " + type->repr_str() + ", for which no argument can be made up");
  }
}

/// Fills an empty module with what the graph reads of it.
class ModuleMaker {
 public:
  explicit ModuleMaker(const Value& self) : type_(self.type()->expect<c10::ClassType>()) {
    module_ = make(type_);
    fill(self, module_);
  }

  const torch::jit::Module& module() const { return module_; }

 private:
  static torch::jit::Module make(const c10::ClassTypePtr& type) {
    torch::jit::Module module(type->compilation_unit(), type);
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      const c10::TypePtr& attribute = type->getAttribute(slot);
      if (attribute->is_module()) {
        module._ivalue()->setSlot(slot, make(attribute->expect<c10::ClassType>())._ivalue());
      } else if (type->getAttributeName(slot) == "training") {
        module._ivalue()->setSlot(slot, true);
      } else if (attribute->kind() == c10::TypeKind::TensorType) {
        module._ivalue()->setSlot(slot, at::Tensor());
      }
    }
    return module;
  }

  void fill(const Value& self, const torch::jit::Module& module) {
    for (const torch::jit::Use& use : self.uses()) {
      const Node* node = use.user;
      if (node->kind() != c10::prim::GetAttr) continue;
      const std::string& name = node->s(c10::attr::name);
      const c10::ClassTypePtr type = module.type();
      const size_t slot = type->getAttributeSlot(name);
      const c10::TypePtr& attribute = type->getAttribute(slot);
      if (attribute->is_module()) {
        fill(*node->output(), module._ivalue()->getSlot(slot).toModule());
      } else if (attribute->kind() == c10::TypeKind::TensorType) {
        if (module._ivalue()->getSlot(slot).toTensor().defined()) continue;
        at::Tensor tensor = tensorOf(node->output()->type(), "the attribute " + name);
        if (type->is_parameter(slot)) tensor.requires_grad_(tensor.is_floating_point());
        module._ivalue()->setSlot(slot, tensor);
      } else if (name != "training") {
        refuse("the attribute " + name, "of the type " + attribute->repr_str() +
                                            " is read, and the graph doesn't hold its value");
      }
    }
  }

  c10::ClassTypePtr type_;
  torch::jit::Module module_;
};

}  // namespace

std::vector<c10::IValue> typedArguments(Graph& graph) {
  std::shared_ptr<Graph> typed = graph.copy();
  // Onto the values themselves.
  torch::jit::RemoveProfileNodesAndSpecializeTypes(typed);
  std::vector<c10::IValue> arguments;
  for (const Value* input : typed->inputs()) {
    if (input->type()->is_module()) {
      arguments.emplace_back(ModuleMaker(*input).module()._ivalue());
    } else {
      arguments.push_back(valueOf(input->type(), "the argument " + input->debugName()));
    }
  }
  return arguments;
}

}  // namespace remat
