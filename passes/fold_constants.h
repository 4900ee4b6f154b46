#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace remat {

/// Folds arithmetic of numbers, strings and None that are constant, takes the branch of a prim::If
/// whose condition is constant, forwards elements of tuples that are built and unpacked again and
/// integers that a trace wrapped into tensors, and drops nodes that nobody uses and whose absence
/// nobody can tell. Returns whether anything changed.
///
///     %p : float = prim::Constant[value=0.5]()
///     %c : bool = aten::lt(%p, %zero)          →  (gone)
///     prim::If(%c) { raise … } { }
///
/// Weaker than LibTorch's passes on purpose: no tensor is folded (it would become part of the
/// file), no attribute is frozen (`training` stays a flag), and a dead node that draws random
/// numbers, writes or raises stays, which LibTorch's dead code elimination would drop.
bool foldConstants(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace remat
