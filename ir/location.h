#pragma once

#include <string>

namespace torch::jit {
struct Node;
}

namespace remat::ir {

/// Where a node comes from, for people.
struct Location {
  std::string module_path;  ///< `layer2.0.relu`; empty where unknown
  std::string source;       ///< `model.py:41`, without the folder; empty where unknown
};

/// The module path is that of the calls that were inlined. The source line is the deepest one in
/// the user's code: frames inside the torch package are passed over, so that a relu is reported
/// where the model calls it. For a graph that was loaded from a file the line in the file that was
/// scripted or traced counts, if it is on record, and not the one of the archive's generated code.
Location locate(const torch::jit::Node& node);

/// `model.py:41: layer2.0.relu: `, without the parts that are unknown; what errors begin with.
std::string locationPrefix(const torch::jit::Node& node);

}  // namespace remat::ir
