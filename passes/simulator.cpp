#include "passes/simulator.h"

#include "ir/plan.h"
#include "passes/simulation_walk.h"

namespace remat {

Simulator::Simulator(const PlanningInput& input)
    : model_(std::make_shared<const SimulationModel>(input)),
      walk_(std::make_unique<SimulationWalk>(*model_)) {}

Simulator::Simulator(const Simulator& other)
    : model_(other.model_), walk_(std::make_unique<SimulationWalk>(*model_)) {}

Simulator& Simulator::operator=(const Simulator& other) {
  if (this != &other) *this = Simulator(other);
  return *this;
}

Simulator::Simulator(Simulator&&) noexcept = default;
Simulator& Simulator::operator=(Simulator&&) noexcept = default;
Simulator::~Simulator() = default;

Evaluation Simulator::evaluate(const std::vector<char>& keep, const EvaluationLimits& limits) {
  return walk_->run(keep, limits, nullptr);
}

Timeline Simulator::trace(const std::vector<char>& keep) {
  Timeline timeline;
  const size_t instants = model_->nodes.size() + model_->backward.size();
  const size_t storages = model_->profile_to_model.size();
  timeline.forward_instants = static_cast<int32_t>(model_->nodes.size());
  timeline.peak_at.assign(instants, 0);
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
  timeline.evaluation = walk_->run(keep, EvaluationLimits(), &timeline);
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
