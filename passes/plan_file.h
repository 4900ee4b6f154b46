#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "passes/planning_input.h"

namespace remat {

/// A plan in the form that outlives its profile: decisions by the names of a graph's values, and
/// what it was made for. Names fit every profile of the same graph, whatever its bytes and times.
struct SavedPlan {
  static constexpr int kVersion = 1;

  std::string tool_version;
  std::string graph_hash;    ///< of the prepared graph: a plan fits one graph
  std::string profile_hash;  ///< of the profile that it was made with
  std::string method;
  std::string inputs;
  std::string loss;
  std::string device;
  std::string times;   ///< of its profile, see timesText; empty in earlier files
  int64_t budget = 0;  ///< bytes; 0: as low as is reachable
  int64_t predicted_peak = 0;
  double recompute_share = 0;
  double lower_bound_share = 0;
  int64_t lower_bound_peak = 0;
  std::map<std::string, ir::Decision> values;  ///< by root of storages; all others are kept
  std::vector<std::string> regenerated;        ///< first tensor of nodes whose internals are
};

/// The decisions of `plan`, with its bounds; what only the caller knows (tool, method, the recorded
/// profile's hash) stays empty.
SavedPlan savedPlan(const PlanningInput& input, const ir::Plan& plan);

/// The plan that `saved` is by `input`, with what the simulator says of it. `input.minimum_bytes`
/// should be 1 before exposeInternals, so that nothing depends on measured sizes. Throws
/// std::runtime_error if it recomputes what may not be, or names what is not there.
ir::Plan planOf(const SavedPlan& saved, const PlanningInput& input);

/// 16 hexadecimal digits of graph and decisions, whatever they were made with.
std::string planHash(const SavedPlan& saved);

/// JSON, one object, for people too. Reading throws std::runtime_error naming what is wrong.
std::string toJson(const SavedPlan& saved);
SavedPlan savedPlanFromJson(const std::string& text);

}  // namespace remat
