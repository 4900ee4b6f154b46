#include "ir/outline.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/method_table.h"
#include "ir/names.h"

namespace remat::ir {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
using torch::jit::Value;

c10::Symbol symbol(const char* name) { return c10::Symbol::fromQualString(name); }

std::shared_ptr<Graph> graphOf(const Module& module, const std::string& method) {
  auto& function = module.get_method(method).function();
  function.ensure_defined();
  return torch::jit::toGraphFunction(function).graph();
}

const Node* findCheckpoint(const Block& block) {
  for (const Node* node : block.nodes()) {
    if (node->kind() == symbol(kCheckpoint)) return node;
    for (const Block* inner : node->blocks()) {
      if (const Node* found = findCheckpoint(*inner)) return found;
    }
  }
  return nullptr;
}

/// The name of the region that `method` calls; empty if it calls none.
std::string calledRegion(const Module& module, const std::string& method) {
  if (!module.find_method(method)) return {};
  auto& function = module.get_method(method).function();
  if (!function.isGraphFunction()) return {};
  const auto graph = graphOf(module, method);
  const Node* call = findCheckpoint(*graph->block());
  if (call == nullptr) return {};
  const auto name = torch::jit::toIValue(call->input(1));
  return name && name->isString() ? name->toStringRef() : std::string();
}

/// The names' common suffix: empty, or `_1`, `_2`, … where the module has methods of these names.
std::string freeSuffix(const Module& module, const std::string& method) {
  const auto taken = [&](const std::string& name) {
    return module.find_method(name).has_value() || module.hasattr(name);
  };
  std::string suffix;
  for (int i = 1;
       taken(regionMethodName(method, 0) + suffix) || taken(originalMethodName(method) + suffix);
       ++i) {
    suffix = "_" + std::to_string(i);
  }
  return suffix;
}

/// The inputs of `model`, with self of the module's own type.
std::vector<Value*> copyInputs(const Graph& model, Graph& graph) {
  std::vector<Value*> inputs;
  for (const Value* input : model.inputs()) {
    Value* copy = graph.addInput();
    copy->copyMetadata(const_cast<Value*>(input));
    inputs.push_back(copy);
  }
  return inputs;
}

std::shared_ptr<Graph> checkpointCall(const Graph& original, const c10::TypePtr& result_type,
                                      const std::string& region_name) {
  auto graph = std::make_shared<Graph>();
  const std::vector<Value*> inputs = copyInputs(original, *graph);
  Value* name = graph->insertConstant(region_name);
  Value* version = graph->insertConstant(kFormatVersion);
  const at::ArrayRef<Value*> arguments = at::ArrayRef<Value*>(inputs).slice(1);
  Value* tuple = graph->insertNode(graph->createTuple(arguments))->output();
  Node* call =
      graph->insertNode(graph->create(symbol(kCheckpoint), {inputs[0], name, tuple, version}));
  call->output()->setType(c10::AnyType::get());
  Value* result = call->output();
  if (result_type->kind() == c10::TypeKind::NoneType) {
    result = graph->insertConstant(c10::IValue());
  } else if (result_type->kind() != c10::TypeKind::AnyType) {
    result = graph->insertUncheckedCast(result, result_type);
  }
  graph->registerOutput(result);
  graph->lint();
  return graph;
}

void checkFits(const Graph& region, const Graph& original, const std::string& method) {
  TORCH_CHECK(region.inputs().size() == original.inputs().size(), "the region of '", method,
              "' takes ", region.inputs().size(), " arguments (self included), the method ",
              original.inputs().size(), ": make the region from a graph of this method");
  TORCH_CHECK(region.outputs().size() == 1, "the region of '", method, "' has ",
              region.outputs().size(), " outputs; a method returns one");
}

}  // namespace

void outlineRegion(Module& module, const std::string& method,
                   const std::shared_ptr<Graph>& region) {
  if (isOptimized(module, method)) strip(module, method);
  const auto original = graphOf(module, method);
  const c10::FunctionSchema schema = module.get_method(method).function().getSchema();
  checkFits(*region, *original, method);

  const auto own_region = withTypeReplaced(*region, region->inputs()[0]->type(), module.type());
  const std::string suffix = freeSuffix(module, method);
  const std::string region_name = regionMethodName(method, 0) + suffix;
  const auto call = checkpointCall(*original, schema.returns().at(0).type(), region_name);

  putMethod(module, method, call, &schema);
  putMethod(module, region_name, own_region, nullptr);
  putMethod(module, originalMethodName(method) + suffix, original->copy(), nullptr);
}

Module cloneForRewrite(const Module& module) {
  const auto type = copyType(module);
  const auto& object = module._ivalue();
  const size_t slots = object->slots().size();
  auto copy =
      c10::ivalue::Object::create(c10::StrongTypePtr(object->compilation_unit(), type), slots);
  for (size_t i = 0; i < slots; ++i) copy->setSlot(i, object->getSlot(i));
  return Module(copy);
}

bool isOptimized(const Module& module, const std::string& method) {
  return !calledRegion(module, method).empty();
}

std::vector<std::string> optimizedMethods(const Module& module) {
  std::vector<std::string> names;
  for (const auto& method : module.get_methods()) {
    if (isOptimized(module, method.name())) names.push_back(method.name());
  }
  return names;
}

std::string regionMethod(const Module& module, const std::string& method) {
  std::string name = calledRegion(module, method);
  TORCH_CHECK(!name.empty(), "method '", method, "' is not optimised: it calls no ", kCheckpoint);
  TORCH_CHECK(
      module.find_method(name).has_value(), "method '", method, "' runs region '", name,
      "', which the module lacks: torch.jit.freeze and optimize_for_inference drop it; strip the "
      "model before them");
  return name;
}

std::string originalMethod(const Module& module, const std::string& method) {
  const std::string region = regionMethod(module, method);
  const std::string prefix = regionMethodName(method, 0);
  TORCH_CHECK(region.rfind(prefix, 0) == 0, "method '", method, "' runs region '", region,
              "', whose name does not begin with '", prefix, "'");
  std::string name = originalMethodName(method) + region.substr(prefix.size());
  TORCH_CHECK(module.find_method(name).has_value(), "method '", method,
              "' is optimised, but its original '", name, "' is missing from the module");
  return name;
}

std::shared_ptr<Graph> regionGraph(const Module& module, const std::string& method) {
  return graphOf(module, regionMethod(module, method));
}

std::shared_ptr<Graph> originalGraph(const Module& module, const std::string& method) {
  return graphOf(module, originalMethod(module, method));
}

void strip(Module& module, const std::string& method) {
  const std::string region = regionMethod(module, method);
  const std::string original = originalMethod(module, method);
  const c10::FunctionSchema schema = module.get_method(method).function().getSchema();
  putMethod(module, method, graphOf(module, original)->copy(), &schema);
  removeMethod(module, region);
  removeMethod(module, original);
}

std::shared_ptr<Graph> regionNodeGraph(Graph& region) {
  auto graph = std::make_shared<Graph>();
  const std::vector<Value*> inputs = copyInputs(region, *graph);
  Node* node = graph->insertNode(graph->create(symbol(kRegion), inputs, region.outputs().size()));
  node->g_(c10::attr::Subgraph, region.copy());
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    node->outputs()[i]->setType(region.outputs()[i]->type());
    graph->registerOutput(node->outputs()[i]);
  }
  return graph;
}

std::shared_ptr<Graph> regionOfNodeGraph(const Graph& graph) {
  const Node* region = nullptr;
  size_t nodes = 0;
  for (const Node* node : graph.nodes()) {
    ++nodes;
    if (node->kind() == symbol(kRegion)) region = node;
  }
  TORCH_CHECK(nodes == 1 && region != nullptr && region->inputs().equals(graph.inputs()) &&
                  graph.outputs().equals(region->outputs()),
              "a graph that does nothing but run one ", kRegion,
              " node on its inputs is needed, got:\n", graph.toString(false));
  return region->g(c10::attr::Subgraph)->copy();
}

}  // namespace remat::ir
