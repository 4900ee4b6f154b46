#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/region_order.h"

namespace torch::jit {
struct Graph;
}

namespace remat::runtime {

/// Operators that write state which autograd and schemas do not show.
enum class HiddenState : uint8_t {
  kNone,
  kRunningStatistics,  ///< inputs 3 and 4, written if input 5 is true: batch_norm, instance_norm
};

using ValueIds = c10::SmallVector<int32_t, 4>;

/// One node of a region, ready to run. Value ids and node ids are those of ir::regionOrder, but for
/// values that only rename another one (`remat::keep`): these carry the other one's id.
struct ProgramNode {
  // What each run reads stands together, first.
  ir::NodeForm form = ir::NodeForm::kOperator;
  HiddenState hidden_state = HiddenState::kNone;
  bool is_get_attribute = false;
  bool is_mark = false;  ///< remat::keep, regenerate or drop: nothing to run
  bool is_dropout_mask = false;
  bool writes = true;                ///< maybe, one of its arguments
  bool kernel_by_gradients = false;  ///< computes otherwise where nothing requires gradients
  bool replayable = false;           ///< by its form
  bool recomputable = false;  ///< replayable, and something of what a replay makes is not kept
  int32_t internals = -1;     ///< value id of what it saved inside of itself, if that is made again
  ValueIds inputs;
  ValueIds outputs;
  ValueIds dead_after;  ///< values whose last use this is
  std::vector<int32_t>
      boundaries_ending;  ///< kept values that no later node can come to need in a replay
  std::shared_ptr<torch::jit::Operation> operation;  ///< one for all nodes of an operator
  std::shared_ptr<torch::jit::Code>
      code;               ///< what the interpreter runs, where there is no operation
  std::string attribute;  ///< of a prim::GetAttr
  std::string op;         ///< `aten::conv2d`
  std::string where;      ///< `layer1.0.conv1 (resnet.py:154)`, for messages
  std::string
      inside;  ///< what it saves and no value shows: `inside layer1.0.conv1 (resnet.py:154)`
  std::vector<int32_t> replay_inputs;  ///< distinct, without constants and hidden state
  ValueIds made;  ///< by a replay: the outputs, then the internals if there are any
  // kBranch: node ids of each block, its outputs, and what dies on entering and leaving it.
  struct Arm {
    std::vector<int32_t> nodes;
    std::vector<int32_t> outputs;
    std::vector<int32_t> dead_on_entry;
    std::vector<int32_t>
        dead_on_exit;  ///< outputs that nothing reads after the branch by this name
  };
  Arm arms[2];
};

/// A region compiled for execution. Immutable, shared by every thread and frame that runs it.
///
/// Beyond the values of ir::regionOrder there is one for each node whose internals are made again
/// (`remat::regenerate`): the list of what it saved and no value shows, never kept.
///
/// A value is *kept* if it is marked, an argument, a constant, holds no tensors, comes from a node
/// that is not replayable, or would not be the same again (ir/verifier.h; lists that are written);
/// every other value is recomputed where a saved slot needs it.
struct RegionProgram {
  std::shared_ptr<torch::jit::Graph> graph;  ///< keeps what the operations refer to alive
  std::vector<ProgramNode> nodes;
  std::vector<int32_t> body;    ///< node ids of the outermost block
  std::vector<int32_t> inputs;  ///< value ids of the arguments, self included
  std::vector<int32_t> outputs;
  std::vector<c10::IValue> constants;  ///< by value id; None where the value is no constant
  std::vector<char> is_constant;       ///< by value id
  std::vector<char> kept;              ///< by value id
  bool recomputes = false;             ///< some value is not kept
  std::vector<char> tensor;            ///< by value id: holds tensors
  std::vector<char> dropped;           ///< by value id: recomputed for each use
  std::vector<char>
      boundary;  ///< by value id: kept, and a recomputable node reads it, or what renames it
  std::vector<int32_t> producer;       ///< node id by value id; -1: argument or constant
  std::vector<std::string> names;      ///< by value id: its debug name
  std::vector<std::string> described;  ///< by value id: name and where it comes from, for messages

  size_t valueCount() const { return kept.size(); }
};

/// Compiles a copy of `graph`, whose inputs are the region's arguments. Throws c10::Error if the
/// graph holds what no region can hold.
std::shared_ptr<const RegionProgram> compileRegion(const torch::jit::Graph& graph);

}  // namespace remat::runtime
