#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "passes/planning_input.h"

namespace remat::testing {

/// Builds consistent profiles without running a model: describe the ops, get the events of a
/// training step in which every saved slot is kept. Seconds and bytes are what the caller says.
class ProfileBuilder {
 public:
  struct Op {
    std::string name;
    double seconds = 0;
    std::vector<int32_t> inputs = {};        ///< values
    std::vector<int64_t> output_bytes = {};  ///< one output each
    std::vector<int32_t> views_of =
        {};             ///< input positions: one more output each, sharing the input's bytes
    bool list = false;  ///< one output that holds the storages of all inputs
    std::vector<int32_t> saved = {};  ///< values of which the op's autograd node saves a slot
    int64_t internal_bytes = 0;       ///< saved by the op, no value shows it
    int64_t scratch_bytes = 0;        ///< while it runs, forward and backward
    bool replayable = true;
    bool differentiable = true;
    /// Values of which the op's autograd node saves what autocast made of them, half as large.
    std::vector<int32_t> saved_casts = {};
  };

  /// A value that lived before the step. A parameter's gradient stays until the step's end.
  int32_t argument(int64_t bytes, bool parameter);

  /// Appends an op and returns its first output; further outputs have the following ids.
  int32_t add(const Op& op);

  /// An extra slot of the last op that matches no value but keeps the value's bytes.
  void saveOpaquely(int32_t value);

  /// The id that the next value gets.
  int32_t valueCount() const { return static_cast<int32_t>(input_.profile.values.size()); }

  PlanningInput finish(const std::vector<int32_t>& outputs);

 private:
  struct Details {
    Op op;
    std::vector<int32_t> outputs;
    std::vector<int32_t> slots;
  };

  void close(const std::vector<int32_t>& outputs);
  void recordForward();
  void recordBackward();
  void runBackward(int32_t node);
  void alloc(std::vector<ir::Event>& events, int32_t storage);
  void free(std::vector<ir::Event>& events, int32_t storage);
  void release(std::vector<ir::Event>& events, int32_t storage);
  int32_t newStorage(int64_t bytes, ir::StorageRole role);

  PlanningInput input_;
  std::vector<Details> ops_;
  std::vector<char> parameter_;    ///< by value
  std::vector<int32_t> holders_;   ///< by storage: executor and slots
  std::vector<int32_t> gradient_;  ///< by storage: the gradient's storage, -1: none
  int64_t live_ = 0;
};

/// conv, batch_norm, relu, repeated: conv and batch_norm save their input, relu its result.
PlanningInput convChain(int layers, int64_t bytes);

/// A uniform chain of `layers` ops that each save their input: the textbook case.
PlanningInput uniformChain(int layers, int64_t bytes, double seconds);

/// ResNet-50's bottleneck blocks with its stages' sizes; `blocks` per stage. Sizes for a batch
/// of 16.
PlanningInput bottleneckNet(const std::vector<int>& blocks);

/// Pre-norm transformer blocks with eager attention, byte masks and view-like dropouts. Sizes for
/// 2048 tokens.
PlanningInput transformer(int layers, int64_t width);

/// A small random step with views, lists, residual edges, ops of several results, ops that must not
/// be replayed, internals, scratch and opaque slots; `casts`: and saved casts.
PlanningInput randomProfile(std::mt19937_64& random, int ops, bool casts = false);

}  // namespace remat::testing
