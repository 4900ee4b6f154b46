#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/frame.h"

namespace remat::runtime {

/// One demand for one recomputed value: finds the nodes to run again, runs them in forward order,
/// without autograd, under the forward's ambient state, and hands what later demands of the same
/// backward will ask for to the session. Several threads may make demands on one frame; one that
/// needs a node that another is running waits for it.
class Materialization {
 public:
  /// `session` may be null: then nothing is cached beyond this demand.
  Materialization(Frame& frame, Session* session) : frame_(frame), session_(session) {}

  c10::IValue make(int32_t value);

 private:
  void collect(int32_t value);
  void runNode(int32_t node);
  bool claim(int32_t node, std::unique_lock<std::mutex>& lock);
  std::vector<c10::IValue> gatherInputs(int32_t node);
  std::vector<c10::IValue> execute(int32_t node, std::vector<c10::IValue> inputs) const;
  void publish(int32_t node, std::vector<c10::IValue> outputs);
  void releaseInputs(int32_t node);

  Frame& frame_;
  Session* session_;
  std::vector<int32_t> nodes_;                       ///< to run, in forward order
  std::unordered_map<int32_t, QueuedValue> values_;  ///< made or found, still to be read
  std::unordered_map<int32_t, std::shared_ptr<const Boundary>> boundaries_;  ///< by value id
  std::unordered_map<int32_t, int32_t>
      reads_;  ///< by value id: nodes of this demand that have yet to read it
};

}  // namespace remat::runtime
