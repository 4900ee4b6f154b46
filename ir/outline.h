#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <vector>

namespace remat::ir {

/// Installs an optimised method: `region` (a graph whose first input is self) becomes the method
/// `remat_region_<method>_0`, the method's present graph becomes `remat_original_<method>`, and the
/// method itself a single `remat::checkpoint` call:
///
///     graph(%self, %x):
///       %region : str = prim::Constant[value="remat_region_forward_0"]()
///       %version : int = prim::Constant[value=1]()
///       %args = prim::TupleConstruct(%x)
///       %any = remat::checkpoint(%self, %region, %args, %version)
///       %result : Tensor = prim::unchecked_cast(%any)
///       return (%result)
///
/// Where the module has methods of these names, both get the same suffix. A method that is
/// optimised already is stripped first. `region` is copied; its self may have the type of another
/// module with the same attributes. The module's type changes: work on a module that nobody else
/// shares its type with (see cloneForRewrite). Throws c10::Error if region and method differ in
/// their arguments.
void outlineRegion(torch::jit::Module& module, const std::string& method,
                   const std::shared_ptr<torch::jit::Graph>& region);

/// A module with a type of its own (so that methods can change) whose parameters, buffers,
/// attributes and submodules are those of `module`, shared.
torch::jit::Module cloneForRewrite(const torch::jit::Module& module);

/// Whether `method` holds a `remat::checkpoint` call.
bool isOptimized(const torch::jit::Module& module, const std::string& method);
/// The methods of `module` that are optimised.
std::vector<std::string> optimizedMethods(const torch::jit::Module& module);

/// Names of the methods that hold region and original of an optimised method. Throw c10::Error if
/// `method` is not optimised, or if the module lacks them.
std::string regionMethod(const torch::jit::Module& module, const std::string& method);
std::string originalMethod(const torch::jit::Module& module, const std::string& method);

/// The graph of the region that `method` calls, and the graph it had before. Throw c10::Error if
/// the method is not optimised.
std::shared_ptr<torch::jit::Graph> regionGraph(const torch::jit::Module& module,
                                               const std::string& method);
std::shared_ptr<torch::jit::Graph> originalGraph(const torch::jit::Module& module,
                                                 const std::string& method);

/// Gives `method` its original graph back and removes region and original methods, so that nothing
/// of Remat is left in the module.
void strip(torch::jit::Module& module, const std::string& method);

/// The region in memory: a graph with the inputs and outputs of `region` and one `remat::region`
/// node that holds a copy of it as its subgraph.
std::shared_ptr<torch::jit::Graph> regionNodeGraph(torch::jit::Graph& region);
/// The subgraph of the one `remat::region` node of such a graph, ready for outlineRegion. Throws
/// c10::Error if the graph does more than call it.
std::shared_ptr<torch::jit::Graph> regionOfNodeGraph(const torch::jit::Graph& graph);

}  // namespace remat::ir
