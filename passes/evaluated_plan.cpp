#include "passes/evaluated_plan.h"

namespace remat {

ir::Plan evaluatedPlan(Simulator& simulator, const std::vector<char>& keep,
                       double forward_seconds) {
  const Timeline timeline = simulator.trace(keep);
  ir::Plan plan;
  plan.keep = keep;
  plan.predicted_peak = timeline.evaluation.peak;
  plan.recompute_seconds = timeline.evaluation.recompute_seconds;
  plan.recompute_share = forward_seconds > 0 ? plan.recompute_seconds / forward_seconds : 0;
  for (const SimulationModel::Storage& storage : simulator.model().storages) {
    const int32_t id = storage.profile_storage;
    const bool dropped = storage.candidate && keep[id] != ir::kKeep;
    plan.kept += timeline.persists[id] && !dropped;
    plan.recomputed += dropped && timeline.replay_first[id] >= 0;
  }
  return plan;
}

int64_t simulatedPeak(const ir::Profile& profile) {
  PlanningInput input;
  input.profile = profile;
  input.replayable.assign(profile.nodes.size(), 0);
  Simulator simulator(input);
  return simulator.evaluate(simulator.keepAll()).peak;
}

}  // namespace remat
