#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/jit/api/module.h>

namespace remat::ir {

/// Installs an optimised method: `region` (a graph whose first input is self) becomes the method
/// `remat_region_<method>_0`, the method's present graph becomes `remat_original_<method>`, and the method
/// itself a single `remat::checkpoint` call. A method that is optimised already is stripped first. The
/// module's type changes: work on a module that nobody else shares its type with (see cloneForRewrite).
void outlineRegion(torch::jit::Module& module, const std::string& method,
                   const std::shared_ptr<torch::jit::Graph>& region);

/// A module with a type of its own (so that methods can change) whose parameters, buffers and attributes
/// are those of `module`, shared.
torch::jit::Module cloneForRewrite(const torch::jit::Module& module);

/// Whether `method` holds a `remat::checkpoint` call.
bool isOptimized(const torch::jit::Module& module, const std::string& method);
/// The methods of `module` that are optimised.
std::vector<std::string> optimizedMethods(const torch::jit::Module& module);

/// The graph of the region that `method` calls, and the graph it had before. Throw c10::Error if the method
/// is not optimised.
std::shared_ptr<torch::jit::Graph> regionGraph(const torch::jit::Module& module, const std::string& method);
std::shared_ptr<torch::jit::Graph> originalGraph(const torch::jit::Module& module, const std::string& method);

/// Gives `method` its original graph back and removes region and original methods, so that nothing of Remat
/// is left in the module.
void strip(torch::jit::Module& module, const std::string& method);

}  // namespace remat::ir
