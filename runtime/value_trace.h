#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace remat::runtime {

/// A tensor that a node made, or the gradient of one.
struct TracedValue {
  std::string op;            ///< `aten::gelu`, of the node that made the value
  std::string where;         ///< `layer1.act (model.py:41)`
  uint64_t fingerprint = 0;  ///< of dtype, sizes and elements
};

/// Runs a graph node by node and takes fingerprints of what it computes: two runs can then be
/// compared without keeping their tensors.
///
///     ValueTrace trace(*graph, ValueTrace::Kind::kRegion);
///     auto outputs = trace.forward({module, x});
///     …                                            // backward
///     trace.gradients();                           // in the order in which they became known
class ValueTrace {
 public:
  enum class Kind : uint8_t {
    kPlain,   ///< nothing is recomputed, whatever the graph marks
    kRegion,  ///< what isn't marked as kept is recomputed
  };

  ValueTrace(const torch::jit::Graph& graph, Kind kind);
  ~ValueTrace();
  ValueTrace(const ValueTrace&) = delete;
  ValueTrace& operator=(const ValueTrace&) = delete;

  /// `arguments` are the graph's inputs, self included; the results are its outputs. Call once.
  std::vector<c10::IValue> forward(std::vector<c10::IValue> arguments);

  const std::vector<TracedValue>& values() const;
  const std::vector<TracedValue>& gradients() const;

 private:
  class Tracer;
  std::shared_ptr<Tracer> tracer_;
};

}  // namespace remat::runtime
