#pragma once

namespace torch::jit {
struct Node;
}

namespace remat::ir {

/// The nodes that only mark a value (ir/names.h), and do nothing themselves.
bool isKeep(const torch::jit::Node& node);
bool isDrop(const torch::jit::Node& node);
bool isRegenerate(const torch::jit::Node& node);
/// Any of them.
bool isMark(const torch::jit::Node& node);

}  // namespace remat::ir
