#include "runtime/node_call.h"

#include <ATen/core/ivalue_inl.h>

namespace remat::runtime {

std::vector<c10::IValue> callNode(const ProgramNode& node, std::vector<c10::IValue> inputs) {
  if (node.is_get_attribute) {
    return {inputs.at(0).toObject()->getAttr(node.attribute)};
  }
  torch::jit::Stack stack = std::move(inputs);
  if (node.code != nullptr) {
    torch::jit::InterpreterState state(*node.code);
    state.run(stack);
  } else {
    (*node.operation)(stack);
  }
  return stack;
}

}  // namespace remat::runtime
