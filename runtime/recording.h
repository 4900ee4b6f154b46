#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "ir/profile.h"

namespace torch::jit {
struct Graph;
}

namespace remat::runtime {

class DeviceAllocationScope;

/// Records one training step of a region while it behaves as without Remat: what each node
/// allocates and saves, how long it takes, and what the backward of each does with memory.
///
///     Recording recording(graph, device);
///     recording.start();                       // on the CPU needs installMemoryStatistics()
///     outputs = recording.forward(arguments);  // self included
///     ... backward, called from this thread ...
///     ... the device is synchronised ...
///     profile = recording.finish();            // on the thread of start()
///
/// Bytes are those of `device`. On the CPU as requested and timed by the host's clock; elsewhere as
/// its caching allocator counts them, and timed by events on the streams that are current, so that
/// nothing waits for the device before the step's end. What a node takes beside its results
/// (workspaces) is seen as it is allocated and freed.
///
/// The gradients of the step's outputs and everything else that is there before it are to be
/// allocated before start(). peak_bytes, graph_hash, device, inputs, and on the CPU step_seconds,
/// of the profile are the caller's to fill.
class Recording {
 public:
  explicit Recording(const torch::jit::Graph& graph, c10::Device device = c10::kCPU);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// `head_start`, seconds: on a device with a DeviceInterface that much work is queued ahead of
  /// the step, so that it runs behind the host and no node's time holds how long its launch took.
  /// step_seconds of the profile is then the device's, from the end of that work to the backward's.
  void start(double head_start = 0);
  std::vector<c10::IValue> forward(std::vector<c10::IValue> arguments);
  ir::Profile finish();

 private:
  class Recorder;
  c10::Device device_;
  std::shared_ptr<Recorder> recorder_;
  std::unique_ptr<DeviceAllocationScope>
      allocations_;  ///< between start and finish, not on the CPU
};

}  // namespace remat::runtime
