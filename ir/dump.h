#pragma once

#include <memory>
#include <string>

#include "ir/annotations.h"

namespace torch::jit {
struct Graph;
}

namespace remat::ir {

/// The graph as text. Every node of a region that makes a noted value ends in a comment:
/// `# kept, 51.4 MB: convolution, costly to recompute; layer1.0.conv1 (resnet.py:154)`, and the
/// region starts with comment lines that sum up kept and recomputed bytes. Reading it with parseIR
/// gives the same graph.
std::string dumpGraph(const torch::jit::Graph& graph, const Annotations* annotations = nullptr);

}  // namespace remat::ir
