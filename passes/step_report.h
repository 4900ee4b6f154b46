#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "passes/planning_input.h"

namespace remat {

/// Bytes of one step over its instants (see Timeline), predicted by the simulator.
struct StepMemory {
  struct Point {
    int32_t instant;
    int64_t bytes;
  };
  /// What is alive at the peak, the largest first, and the rest of it.
  struct Part {
    std::string name;  ///< `values of layer1`, `gradients`, …
    int64_t bytes;
  };
  int32_t forward_instants = 0;
  int32_t instants = 0;
  std::vector<Point> points;  ///< of many instants the highest in each stretch
  Point peak{0, 0};
  /// What runs at the peak, in the forward, or whose backward does; empty: the loss or the caller.
  std::string op;
  std::string module_path;
  std::string source;
  std::vector<Part> parts;

  bool peaksInBackward() const { return peak.instant >= forward_instants; }
};

/// The step under the decisions `keep`, ir::Decision by storage.
StepMemory stepMemory(const PlanningInput& input, const std::vector<char>& keep);

/// A saved value that a plan decides on, or that has to stay.
struct DecidedValue {
  std::string name;  ///< in the dumps
  std::string op;
  std::string module_path;
  std::string source;
  int64_t bytes = 0;
  double seconds = 0;  ///< of one execution of what makes it
  bool recomputed = false;
};

/// In the order of their production.
std::vector<DecidedValue> decidedValues(const PlanningInput& input, const ir::Plan& plan);

}  // namespace remat
