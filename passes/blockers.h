#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "ir/remark.h"
#include "passes/planning_input.h"

namespace remat {

/// A node that may not be replayed, and what is kept at a plan's peak because of it.
struct Blocker {
  std::string op;
  std::string module_path;
  std::string source;
  std::string reasons;  ///< names, as `in-place-write, random`
  int64_t bytes = 0;    ///< alive at the peak, saved for the backward
};

/// What holds the peak of `plan` up: the nodes with most bytes, at most `count`, largest first.
/// Counted are storages that stay for the backward since a node that makes or views them may not be
/// replayed, and what such a node saved inside of itself. `remarks` give the reasons.
std::vector<Blocker> blockers(const PlanningInput& input, const ir::Plan& plan,
                              const std::vector<ir::Remark>& remarks, size_t count = 3);

/// `; kept at its peak: 51.4 MB aten::foo at layer1.0 (resnet.py:154) [unknown-op], …`; empty where
/// nothing is.
std::string blockersText(const std::vector<Blocker>& blockers);

}  // namespace remat
