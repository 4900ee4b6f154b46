#pragma once

#include <string>

namespace torch::jit {
struct Module;
}

namespace remat::ir {

/// What tells two attributes apart that hold the same: the storage of a tensor, the object of a
/// submodule. `path` is `layer1.0.bn1.running_mean`. nullptr for anything else and for a path that
/// leads nowhere.
const void* attributeIdentity(const torch::jit::Module& module, const std::string& path);

}  // namespace remat::ir
