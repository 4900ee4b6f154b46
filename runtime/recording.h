#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "ir/profile.h"

namespace torch::jit {
struct Graph;
}

namespace remat::runtime {

/// Records one training step of a region while it behaves as without Remat: what each node
/// allocates and saves, how long it takes, and what the backward of each does with memory.
///
///     Recording recording(graph);
///     recording.start();                       // needs installMemoryStatistics()
///     outputs = recording.forward(arguments);  // self included
///     ... backward on this thread ...
///     profile = recording.finish();
///
/// The gradients of the step's outputs and everything else that is there before it are to be
/// allocated before start(). peak_bytes, graph_hash, device and inputs of the profile are the
/// caller's to fill.
class Recording {
 public:
  explicit Recording(const torch::jit::Graph& graph);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void start();
  std::vector<c10::IValue> forward(std::vector<c10::IValue> arguments);
  ir::Profile finish();

 private:
  class Recorder;
  std::shared_ptr<Recorder> recorder_;
};

/// The last of several recordings of one step, with the median of every node's times. (Not the
/// shortest: an operator that is limited by memory is fast when it is lucky, and a planner picks
/// the lucky ones.) The step's own time is the shortest.
ir::Profile withMedianTimes(std::vector<ir::Profile> recordings);

}  // namespace remat::runtime
