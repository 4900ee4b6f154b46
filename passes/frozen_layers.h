#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <vector>

namespace torch::jit {
struct Graph;
}

namespace remat {

/// By node of ir::regionOrder: whether it belongs to frozen layers, which are there once in a step:
/// it depends on a parameter that requires no grad, and on nothing that does. Nothing of it is
/// saved but what the first layer that learns reads, and to make that again, they would run again
/// whole.
///
/// `inputs` are the method's arguments without self.
std::vector<char> frozenNodes(torch::jit::Graph& graph, const torch::jit::Module& module,
                              const std::vector<c10::IValue>& inputs);

}  // namespace remat
