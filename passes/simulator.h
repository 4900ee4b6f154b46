#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "passes/planning_input.h"
#include "passes/simulation_model.h"

namespace remat {

/// What one training step costs under a plan.
struct Evaluation {
  int64_t peak = 0;              ///< bytes: the most that the step holds at once
  double recompute_seconds = 0;  ///< forward time of everything that is executed again
  int64_t excess = 0;        ///< bytes above EvaluationLimits::soft_peak, summed over the step's
                             ///< allocations: how far from a budget, where the peak is one of many
  int32_t peak_instant = 0;  ///< where the peak is first reached; see Timeline
  bool aborted = false;      ///< a limit was exceeded: peak and seconds are what was seen so far
};

/// A walk stops early as soon as it is clear that a plan is not wanted: its peak is above `peak`,
/// or its recompute time plus `seconds_per_byte` for each byte of the peak above `soft_peak` is
/// more than `recompute_seconds`.
struct EvaluationLimits {
  int64_t peak = std::numeric_limits<int64_t>::max();
  double recompute_seconds = std::numeric_limits<double>::infinity();
  int64_t soft_peak = std::numeric_limits<int64_t>::max();
  double seconds_per_byte = 0;
};

/// One step under a plan, instant by instant. Instants 0 … forward_instants-1 are the executed
/// nodes that do anything with memory, the following ones the events of the backward; a replay
/// belongs to the instant whose unpacking asked for it. Storage arrays are indexed by the profile's
/// ids; -1 stands for "never".
struct Timeline {
  Evaluation evaluation;
  int32_t forward_instants = 0;
  std::vector<int64_t> peak_at;        ///< bytes, by instant
  std::vector<int32_t> profile_index;  ///< by instant: node of the forward, step of the backward
  std::vector<int32_t> first_alive;    ///< instant in which the forward allocates the storage
  std::vector<int32_t> last_alive;     ///< last instant in which that allocation is alive
  std::vector<int32_t> replay_first;   ///< instant in which the backward makes the storage again
  std::vector<int32_t> replay_last;    ///< last instant in which the recomputed bytes are alive
  std::vector<char> persists;          ///< alive after the forward: kept for the backward
};

/// The exact judge of plans: walks one training step, forward and backward, as the runtime executes
/// it, and counts every storage's bytes from its allocation to its last holder's end.
///
/// A storage is held by the executor (a value's production to its last use), by kept slots, by
/// boundaries (kept values that a live handle's replay starts from), by the replay cache and by
/// tensors in use. Storages that are not of role kValue live as recorded. With every storage kept
/// the peak of a consistent profile equals Profile::peak_bytes (`consistent()`).
///
/// Cost: the constructor is linear in the profile; `evaluate` is linear in nodes, their tensor
/// inputs, saved slots and their events, allocates nothing, and takes about 10 µs for a ResNet-50.
/// Staleness: a simulator copies what it needs from the input and describes that profile for ever;
/// build a new one when profile or legality change. Not thread-safe: `evaluate` uses scratch
/// memory; copies share the model and are independent.
class Simulator {
 public:
  /// Throws std::invalid_argument if `replayable` does not fit the profile.
  explicit Simulator(const PlanningInput& input);
  Simulator(const Simulator& other);
  Simulator& operator=(const Simulator& other);
  Simulator(Simulator&&) noexcept;
  Simulator& operator=(Simulator&&) noexcept;
  ~Simulator();

  /// `keep` is indexed by the profile's storages; storages that can't be recomputed are kept
  /// whatever it says.
  Evaluation evaluate(const std::vector<char>& keep, const EvaluationLimits& limits = {});

  /// The same walk with everything noted on the way; several times the cost of `evaluate`.
  Timeline trace(const std::vector<char>& keep);

  /// Storages that may be recomputed, by profile id, in order of production: the planner's
  /// decisions.
  std::vector<int32_t> candidates() const;

  /// A plan with everything kept: as many entries as the profile has storages.
  std::vector<char> keepAll() const;

  /// Whether the profile's own measured peak is reproduced when everything is kept.
  bool consistent();

  const SimulationModel& model() const { return *model_; }

 private:
  struct State;
  std::shared_ptr<const SimulationModel> model_;
  std::unique_ptr<State> state_;
};

}  // namespace remat
