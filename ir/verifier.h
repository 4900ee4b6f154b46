#pragma once

#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace remat::ir {

/// Checks a region's graph: every value that a backward may recompute comes from a node that may be
/// replayed by its schema (no write, no randomness but remat::dropout_mask, no side effect), no
/// such value shares its bytes with a region output or with a storage that the region writes, every
/// keep mark is on a tensor or a list of tensors. Returns one line per violation, naming node,
/// module path and source line; empty: fine.
std::vector<std::string> verifyRegion(torch::jit::Graph& region);

}  // namespace remat::ir
