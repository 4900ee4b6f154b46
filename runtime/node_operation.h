#pragma once

#include <ATen/core/stack.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/region_order.h"

namespace torch::jit {
struct Operator;
}

namespace remat::runtime {

/// Whether calling the node's operator does what the interpreter does. Of prim::RaiseException,
/// aten::warn and others the interpreter has its own way, whatever is registered.
bool hasOperation(const ir::OrderedNode& ordered);

/// What nodes call: one object for all that call the same operator.
class Operations {
 public:
  std::shared_ptr<torch::jit::Operation> of(const torch::jit::Node& node);

 private:
  std::unordered_map<const torch::jit::Operator*, std::shared_ptr<torch::jit::Operation>> known_;
};

/// A graph of just some nodes, for the interpreter: its inputs are everything these read, in the
/// order of first use.
struct InterpretedNodes {
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<torch::jit::Value*> inputs;   ///< in the nodes' own graph
  std::vector<torch::jit::Value*> outputs;  ///< of a single node all, of several what others read
};

InterpretedNodes interpretedNodes(const std::vector<torch::jit::Node*>& nodes);

}  // namespace remat::runtime
