#include "runtime/liveness.h"

#include <algorithm>
#include <set>

namespace remat::runtime {
namespace {

using ir::NodeForm;
using LiveSet = std::set<int32_t>;

class DeathFinder {
 public:
  explicit DeathFinder(RegionProgram& program) : program_(program) {}

  void run() {
    LiveSet live(program_.outputs.begin(), program_.outputs.end());
    walk(program_.body, live);
  }

 private:
  /// Walks a block backwards; `live` is what is used after it and becomes what is used from its
  /// start on.
  void walk(const std::vector<int32_t>& nodes, LiveSet& live) {
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
      ProgramNode& node = program_.nodes[*it];
      if (node.is_mark) {
        continue;
      }
      if (node.form == NodeForm::kBranch) {
        walkBranch(node, live);
      } else {
        walkCall(node, live);
      }
    }
  }

  void walkCall(ProgramNode& node, LiveSet& live) {
    const auto dies = [&](int32_t v) {
      return program_.is_constant[v] == 0 && live.count(v) == 0 &&
             std::find(node.dead_after.begin(), node.dead_after.end(), v) == node.dead_after.end();
    };
    for (int32_t v : node.outputs) {
      if (dies(v)) {
        node.dead_after.push_back(v);
      }
    }
    for (int32_t v : node.inputs) {
      if (dies(v)) {
        node.dead_after.push_back(v);
      }
    }
    for (int32_t v : node.outputs) {
      live.erase(v);
    }
    live.insert(node.inputs.begin(), node.inputs.end());
  }

  void walkBranch(ProgramNode& node, LiveSet& live) {
    for (int32_t v : node.outputs) {
      if (live.count(v) == 0) {
        node.dead_after.push_back(v);
      }
      live.erase(v);
    }
    LiveSet entry[2] = {live, live};
    for (int arm = 0; arm < 2; ++arm) {
      for (const int32_t v : node.arms[arm].outputs) {
        if (live.count(v) == 0 && program_.is_constant[v] == 0) {
          node.arms[arm].dead_on_exit.push_back(v);
        }
        entry[arm].insert(v);
      }
      walk(node.arms[arm].nodes, entry[arm]);
    }
    for (int arm = 0; arm < 2; ++arm) {
      for (int32_t v : entry[1 - arm]) {
        if (entry[arm].count(v) == 0 && program_.is_constant[v] == 0) {
          node.arms[arm].dead_on_entry.push_back(v);
        }
      }
    }
    live.insert(entry[0].begin(), entry[0].end());
    live.insert(entry[1].begin(), entry[1].end());
    live.insert(node.inputs.begin(), node.inputs.end());
  }

  RegionProgram& program_;
};

/// The last node after whose execution a replay may come to depend on each value: its consumers,
/// and what depends on their recomputed outputs. One pass from the last node to the first, and true
/// if it changed anything: what a branch returns is known only after its arms were passed, so
/// passes repeat.
bool raiseHorizons(const RegionProgram& program, std::vector<int32_t>& horizon) {
  bool changed = false;
  const auto raise = [&](int32_t v, int32_t node) {
    changed = changed || horizon[v] < node;
    horizon[v] = std::max(horizon[v], node);
  };
  for (auto i = static_cast<int32_t>(program.nodes.size()) - 1; i >= 0; --i) {
    const ProgramNode& node = program.nodes[i];
    if (node.form == NodeForm::kConstant || node.form == NodeForm::kInside || node.is_mark) {
      continue;
    }
    int32_t reach = i;
    if (node.form == NodeForm::kBranch) {
      for (const auto& arm : node.arms) {
        for (size_t k = 0; k < arm.outputs.size(); ++k) {
          raise(arm.outputs[k], std::max(i, horizon[node.outputs[k]]));
        }
      }
    } else if (node.recomputable) {
      for (int32_t v : node.outputs) {
        reach = program.kept[v] == 0 ? std::max(reach, horizon[v]) : reach;
      }
    }
    for (int32_t v : node.inputs) {
      raise(v, reach);
    }
  }
  return changed;
}

/// Fills recomputable and replay_inputs of one node and notes what it reads in a replay.
void addReplayInputs(const RegionProgram& program, ProgramNode& node, std::vector<char>& read) {
  node.recomputable =
      node.replayable && std::any_of(node.made.begin(), node.made.end(),
                                     [&](int32_t v) { return program.kept[v] == 0; });
  if (!node.recomputable) {
    return;
  }
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const int32_t v = node.inputs[k];
    const bool hidden = node.hidden_state == HiddenState::kRunningStatistics && (k == 3 || k == 4);
    const auto& known = node.replay_inputs;
    if (!hidden && program.is_constant[v] == 0 &&
        std::find(known.begin(), known.end(), v) == known.end()) {
      node.replay_inputs.push_back(v);
      read[v] = 1;
    }
  }
}

/// Who reads what a branch returns reads what its arms return. True if that was news.
bool passReadsToArms(const RegionProgram& program, std::vector<char>& read) {
  bool changed = false;
  for (const ProgramNode& node : program.nodes) {
    for (size_t k = 0; node.form == NodeForm::kBranch && k < node.outputs.size(); ++k) {
      for (const auto& arm : node.arms) {
        if (read[node.outputs[k]] != 0 && read[arm.outputs[k]] == 0) {
          read[arm.outputs[k]] = 1;
          changed = true;
        }
      }
    }
  }
  return changed;
}

}  // namespace

void addDeaths(RegionProgram& program) { DeathFinder(program).run(); }

void addBoundaries(RegionProgram& program) {
  program.recomputes = std::find(program.kept.begin(), program.kept.end(), 0) != program.kept.end();
  std::vector<char> read(program.valueCount(), 0);
  for (auto i = static_cast<int32_t>(program.nodes.size()) - 1; i >= 0; --i) {
    addReplayInputs(program, program.nodes[i], read);
  }
  while (passReadsToArms(program, read)) {
  }
  std::vector<int32_t> horizon(program.valueCount(), -1);
  while (raiseHorizons(program, horizon)) {
  }
  program.boundary.assign(program.valueCount(), 0);
  for (size_t v = 0; v < program.valueCount(); ++v) {
    program.boundary[v] =
        program.kept[v] != 0 && read[v] != 0 && program.is_constant[v] == 0 ? 1 : 0;
    if (program.boundary[v] != 0) {
      program.nodes[horizon[v]].boundaries_ending.push_back(static_cast<int32_t>(v));
    }
  }
}

}  // namespace remat::runtime
