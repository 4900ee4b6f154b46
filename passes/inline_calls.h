#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
struct GraphFunction;
}  // namespace torch::jit

namespace remat {

/// A copy of the function's graph with every call of a TorchScript function or method inlined,
/// again and again until none is left. Calls through module interfaces and of custom classes stay.
///
/// LibTorch's `Inline` does the same, but names a call by its last attribute only (`0` for
/// `self.layers.0(x)`) and leaves nodes without outputs without a call stack. Here every inlined
/// node's InlinedCallStack carries the whole attribute chain, so that ir/location.h can tell
/// `layers.0`. The graphs that are inlined are the functions' own, not their optimised forms: those
/// hold the casts of TorchScript's autocast pass, which rounds differently from eager, and have
/// lost dead random draws.
std::shared_ptr<torch::jit::Graph> inlinedGraph(torch::jit::GraphFunction& function);

}  // namespace remat
