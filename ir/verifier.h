#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace remat::ir {

/// Checks a region's graph. A backward may recompute every value without a `remat::keep` mark that
/// a node makes which may be replayed by its form (see isReplayableByForm). No such value may share
/// its bytes with a result of the region or with what the region writes, nor come from a node that
/// reads what is written later, or a list that is written at all. Every mark is on a tensor or a
/// list of tensors. Returns one line per violation, naming node, module path and source line;
/// empty: fine. Where `remat::regenerate` is on a result, its operator may run again: it would do
/// the same.
std::vector<std::string> verifyRegion(torch::jit::Graph& region);

/// Values (ids by regionOrder) that must carry a mark for verifyRegion to be content, whatever the
/// plan says, and carry none.
std::vector<int32_t> valuesToKeepAnyway(torch::jit::Graph& region);

/// Values (ids by regionOrder) that `remat::regenerate` is on, and whose operator may run again.
std::vector<int32_t> valuesToRegenerate(torch::jit::Graph& region);

}  // namespace remat::ir
