#pragma once

namespace torch::jit {
struct Node;
}

namespace remat {

/// Whether the sizes of what `node` makes depend on the contents of a tensor: nonzero, unique,
/// masked_select, indexing by a tensor that may be a mask, … A replay has no way to check that the
/// sizes are still the same before it has run.
bool hasDataDependentShape(const torch::jit::Node& node);

}  // namespace remat
