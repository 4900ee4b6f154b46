#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace remat {

/// Replaces in-place ops by their functional forms where nobody can tell the difference. Returns
/// whether anything changed.
///
///     %x = aten::conv2d(…)                 %x = aten::conv2d(…)
///     %w = aten::relu_(%x)             →   %y = aten::relu(%x)
///     %z = aten::add(%x, %w, %one)         %z = aten::add(%y, %y, %one)
///
/// That is so if x was made in the same block by an op whose results have bytes of their own, and
/// nothing that ran between the two could make an alias of it: then x is the only name of these
/// bytes, and whoever uses x later means the written value. The op must be one of a list whose
/// functional form computes the same bits, also under autocast. Nothing is moved across a `with`
/// statement or a change of the grad mode.
///
/// `x.add_(y)` keeps x's dtype, x + y need not: such an op is followed by a cast that does nothing
/// where the two agree:
///
///     %s = aten::add(%x, %y, %one)
///     %dtype = prim::dtype(%x)
///     %z = aten::to(%s, %dtype, %false, %false, %none)
///
/// What stays in place is refused later, by legality, with its reason.
bool functionalize(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace remat
