#pragma once

namespace torch::jit {
struct Graph;
}

namespace remat {

/// Builds a list anew instead of appending to it, so that what was read from it before can be read
/// again. Returns whether anything changed.
///
///     %l = prim::ListConstruct(%x)         %l = prim::ListConstruct(%x)
///     %a = aten::cat(%l, %dim)             %a = aten::cat(%l, %dim)
///     %m = aten::append(%l, %a)        →   %m = prim::ListConstruct(%x, %a)
///     %b = aten::cat(%l, %dim)             %b = aten::cat(%m, %dim)
///
/// That is so for a list of tensors that is used by appends in its own block and by operators that
/// only look at its elements: nobody else knows the list. (LibTorch's
/// RemoveListMutation stops at the first reader.)
bool makeListVersions(torch::jit::Graph& graph);

}  // namespace remat
