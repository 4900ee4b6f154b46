#pragma once

#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <string>

namespace remat::ir {

/// Methods of a module's type are changed by making new functions, never by changing a graph: a
/// function that has run keeps the plans of its old graph.

/// Puts a method with this graph and schema where the method of that name is, at the same place in
/// the type's order; behind all others if there is none.
void putMethod(torch::jit::Module& module, const std::string& name,
               const std::shared_ptr<torch::jit::Graph>& graph, const c10::FunctionSchema* schema);

/// Removes a method from the module's type and from its compilation unit.
void removeMethod(torch::jit::Module& module, const std::string& name);

/// A type of its own for a module: a copy of its type under a new name, methods, hooks and
/// properties included, with the attributes' types as they are.
c10::ClassTypePtr copyType(const torch::jit::Module& module);

/// A copy of `graph` in which every occurrence of one class type is another one.
std::shared_ptr<torch::jit::Graph> withTypeReplaced(torch::jit::Graph& graph,
                                                    const c10::TypePtr& from,
                                                    const c10::TypePtr& to);

}  // namespace remat::ir
