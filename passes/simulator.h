#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "passes/evaluation.h"
#include "passes/planning_input.h"
#include "passes/simulation_model.h"

namespace remat {

class PlanState;

/// The exact judge of plans: walks one training step, forward and backward, as the runtime executes
/// it, and counts every storage's bytes from its allocation to its last holder's end.
///
/// A storage is held by the executor (a value's production to its last use), by kept slots, by
/// boundaries (kept values that a live handle's replay starts from), by the replay cache and by
/// tensors in use. Storages that are not of role kValue live as recorded. With every storage kept
/// the peak of a consistent profile equals Profile::peak_bytes (`consistent()`).
///
/// Incremental: a simulator remembers the last plan and makes anew only what another one changes
/// (PlanState), so a plan near the last one costs far less than a walk of the step; see `work`.
/// Staleness: a simulator copies what it needs from the input and describes that profile for ever;
/// build a new one when profile or legality change. Not thread-safe; copies share the model and are
/// independent.
class Simulator {
 public:
  /// Throws std::invalid_argument if `replayable` does not fit the profile.
  explicit Simulator(const PlanningInput& input);
  Simulator(const Simulator& other);
  Simulator& operator=(const Simulator& other);
  Simulator(Simulator&&) noexcept;
  Simulator& operator=(Simulator&&) noexcept;
  ~Simulator();

  /// `keep` holds an ir::Decision for each of the profile's storages; those that can't be
  /// recomputed are kept whatever it says.
  Evaluation evaluate(const std::vector<char>& keep, const EvaluationLimits& limits = {});

  /// How much has been looked at so far, in units of about a node or a replay: what evaluations
  /// cost, the same on every machine.
  int64_t work() const;

  /// The same step, instant by instant; several times the cost of `evaluate`.
  Timeline trace(const std::vector<char>& keep);

  /// Storages that may be recomputed, by profile id, in order of production: the planner's
  /// decisions.
  std::vector<int32_t> candidates() const;

  /// A plan with everything kept: as many entries as the profile has storages.
  std::vector<char> keepAll() const;
  /// A plan with every candidate recomputed.
  std::vector<char> dropAll() const;

  /// Whether the profile's own measured peak is reproduced when everything is kept.
  bool consistent();

  const SimulationModel& model() const { return *model_; }

 private:
  std::shared_ptr<const SimulationModel> model_;
  std::unique_ptr<PlanState> state_;
};

}  // namespace remat
