#include "passes/simulator.h"

#include <algorithm>

#include "ir/plan.h"
#include "passes/plan_state.h"

namespace remat {

Simulator::Simulator(const PlanningInput& input)
    : model_(std::make_shared<const SimulationModel>(input)),
      state_(std::make_unique<PlanState>(*model_)) {}

Simulator::Simulator(const Simulator& other)
    : model_(other.model_), state_(std::make_unique<PlanState>(*model_)) {}

Simulator& Simulator::operator=(const Simulator& other) {
  if (this != &other) *this = Simulator(other);
  return *this;
}

Simulator::Simulator(Simulator&&) noexcept = default;
Simulator& Simulator::operator=(Simulator&&) noexcept = default;
Simulator::~Simulator() = default;

Evaluation Simulator::evaluate(const std::vector<char>& keep, const EvaluationLimits& limits) {
  state_->change(keep);
  Evaluation result = state_->measure(limits.soft_peak);
  const auto above = static_cast<double>(std::max<int64_t>(0, result.peak - limits.soft_peak));
  const double cost = result.recompute_seconds + limits.seconds_per_byte * above;
  result.aborted = result.peak > limits.peak || cost > limits.recompute_seconds;
  return result;
}

int64_t Simulator::work() const { return state_->work(); }

Timeline Simulator::trace(const std::vector<char>& keep) {
  Timeline timeline;
  const size_t storages = model_->profile_to_model.size();
  timeline.forward_instants = static_cast<int32_t>(model_->nodes.size());
  for (const SimulationModel::Node& node : model_->nodes)
    timeline.profile_index.push_back(node.profile_node);
  for (const SimulationModel::BackwardOp& op : model_->backward) {
    timeline.profile_index.push_back(op.profile_step);
  }
  timeline.first_alive.assign(storages, -1);
  timeline.last_alive.assign(storages, -1);
  timeline.replay_first.assign(storages, -1);
  timeline.replay_last.assign(storages, -1);
  timeline.persists.assign(storages, 0);
  for (int32_t node = 0; node < model_->node_allocs.size(); ++node) {
    for (int32_t s : model_->node_allocs[node]) {
      timeline.first_alive[model_->storages[s].profile_storage] = node;
    }
  }
  state_->change(keep);
  state_->trace(timeline);
  return timeline;
}

std::vector<int32_t> Simulator::candidates() const {
  std::vector<int32_t> ids;
  ids.reserve(model_->candidates.size());
  for (int32_t s : model_->candidates) ids.push_back(model_->storages[s].profile_storage);
  return ids;
}

std::vector<char> Simulator::keepAll() const {
  return std::vector<char>(model_->profile_to_model.size(), 1);
}

std::vector<char> Simulator::dropAll() const {
  std::vector<char> keep = keepAll();
  for (int32_t storage : candidates()) keep[storage] = ir::kRecompute;
  return keep;
}

bool Simulator::consistent() { return evaluate(keepAll()).peak == model_->measured_peak; }

}  // namespace remat
