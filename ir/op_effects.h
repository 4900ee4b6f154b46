#pragma once

#include <cstddef>
#include <vector>

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace remat::ir {

/// Inputs whose bytes the results of `node` may share: by its schema, because the op is known to
/// hand its input through in some mode, or because nothing is known of it.
std::vector<const torch::jit::Value*> sharedInputs(const torch::jit::Node& node);

/// Inputs that `node` writes by its schema: tensors in place, lists and dicts.
std::vector<const torch::jit::Value*> writtenInputs(const torch::jit::Node& node);

/// Running statistics that a norm in training mode moves, which no schema shows; empty in
/// evaluation mode.
std::vector<const torch::jit::Value*> writtenStatistics(const torch::jit::Node& node);

/// Whether `value` is an input of a norm that the runtime replaces by None or by a copy in a
/// replay.
bool isStatisticInput(const torch::jit::Node& norm, size_t input);

/// Whether nobody knows what `node` does with its inputs: a fork, a call that stays, an op that
/// declares nothing about aliases.
bool isUnknownCall(const torch::jit::Node& node);

}  // namespace remat::ir
