#pragma once

#include <string>
#include <unordered_set>
#include <vector>

namespace remat {

/// Which ops may run a second time in the backward.
///
/// An op that is not listed is unknown, and an unknown op is unsafe. The list is grouped, each
/// group says why its ops are there; checks on the node itself (writes, randomness, side effects)
/// come on top of it, see passes/legality.h.
class ReplayTable {
 public:
  /// `allow_ops`: qualified names (`mylib::op`) of further ops that the user vouches for.
  explicit ReplayTable(const std::vector<std::string>& allow_ops = {});

  /// Whether the op of that qualified name (`aten::relu`) gives the same result from the same
  /// inputs.
  bool isKnown(const std::string& op) const;

 private:
  std::unordered_set<std::string> allowed_;
};

/// Whether every tensor that the op makes has bytes of its own, in every mode and for every
/// argument. Views are not, nor are ops that may hand their input through (`aten::to`,
/// `aten::dropout`).
bool makesFreshTensors(const std::string& op);

/// Why the op is in the list: its group, for people; nullptr if it is unknown.
const char* replayReason(const std::string& op);

/// The qualified names of all listed ops, sorted.
std::vector<std::string> replayableOps();

}  // namespace remat
