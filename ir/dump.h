#pragma once

#include <memory>
#include <string>

#include "ir/annotations.h"

namespace torch::jit {
struct Graph;
}

namespace remat::ir {

/// The graph as text, without folders of this machine and without what loading a file makes of
/// names
/// (`___torch_mangle_3.`, value numbers): the same graph gives the same text before and after
/// saving. Every node that makes a noted value ends in a comment:
///
///     %layer1_0_conv1 : Tensor = remat::keep(%30) # kept, 51.4 MB: convolution, costly to
///     recompute; layer1.0.conv1 (resnet.py:154)
///
/// and the text starts with comment lines that sum up kept and recomputed bytes. parseIR reads it
/// back, as far as it knows the types of the graph's inputs.
std::string dumpGraph(const torch::jit::Graph& graph, const Annotations* annotations = nullptr);

}  // namespace remat::ir
