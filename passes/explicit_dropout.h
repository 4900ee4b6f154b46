#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace remat {

/// Makes the mask of every `aten::dropout` a value of the graph. Returns whether anything changed.
///
///     %y = aten::dropout(%x, %p, %train)
///     →
///     %mask = remat::dropout_mask(%x, %p, %train)
///     %y = remat::dropout(%x, %mask, %p, %train)
///
/// `aten::dropout_` waits for functionalize(). feature_dropout, alpha_dropout and dropout inside of
/// other ops (attention, recurrent nets) stay: their ops draw with no mask to show.
bool makeDropoutExplicit(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace remat
