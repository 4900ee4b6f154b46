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
/// With `attention`, that of attention as well, unless its dropout_p is the constant 0: its
/// probabilities, their dropout, and the rest (runtime/attention.h). That is what LibTorch itself
/// does on the CPU; on CUDA its kernels draw inside, hold no probabilities, and should stay.
///
/// `aten::dropout_` waits for functionalize(). feature_dropout, alpha_dropout and dropout inside of
/// recurrent nets stay: their ops draw with no mask to show.
bool makeDropoutExplicit(const std::shared_ptr<torch::jit::Graph>& graph, bool attention);

}  // namespace remat
