#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace remat::ir {

/// What is said of one value of a region in dumps.
struct ValueNote {
  bool kept = false;
  int64_t bytes = 0;   ///< of its storage
  std::string reason;  ///< why kept or recomputed, for people
  std::string module_path;
  std::string source;
};

/// What an optimised file says of itself beside its code: archive entry `remat.json`. For people
/// and for `verify`; the runtime never reads it.
struct Annotations {
  std::string tool_version;
  std::string method;
  std::string inputs;  ///< the sample inputs that were planned for
  std::string device;
  std::string plan_hash;       ///< of graph and decisions, see planHash; empty in earlier files
  std::string profile_hash;    ///< of the profile that was planned with; empty in earlier files
  std::string loss;            ///< of the step that was planned for, see lossName
  int64_t budget = 0;          ///< bytes of the step peak
  int64_t original_peak = 0;   ///< bytes, measured
  int64_t predicted_peak = 0;  ///< bytes, by the simulator
  double recompute_share = 0;  ///< of one forward, by the simulator
  std::map<std::string, ValueNote> values;  ///< by the value's debug name in the region
};

std::string toJson(const Annotations& annotations);
/// Throws std::runtime_error naming what is wrong.
Annotations annotationsFromJson(const std::string& text);

}  // namespace remat::ir
