#include "passes/planner.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "passes/cut_seeds.h"
#include "passes/local_search.h"
#include "passes/plan_archive.h"
#include "passes/simulator.h"

namespace remat {
namespace {

constexpr int kPriceSteps = 60;
constexpr int kCutRounds = 60;
constexpr int kRestarts = 6;
/// First temperatures of the annealings, as shares of the time that recomputing everything takes:
/// enough to leave any plan, and just enough to rearrange one.
constexpr double kHot = 0.2;
constexpr double kWarm = 0.01;
constexpr double kRelaxed = 6;
constexpr double kUrgent = 60;

}  // namespace

class Planner::Search {
 public:
  Search(const PlanningInput& input, const PlannerOptions& options)
      : options_(options),
        forward_seconds_(input.profile.forwardSeconds()),
        simulator_(input),
        cuts_(simulator_, archive_),
        local_(simulator_, archive_, options.seed) {
    cuts_.sweepPrices(kPriceSteps);
  }

  ir::Plan plan(int64_t budget) {
    const auto start = std::chrono::steady_clock::now();
    improve(budget);
    ir::Plan plan = best(budget);
    plan.planning_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return plan;
  }

  /// The answer as far as it is known.
  ir::Plan best(int64_t budget) {
    const PlanArchive::Entry* entry = archive_.best(budget);
    if (entry == nullptr) entry = archive_.lowest();
    return describe(*entry, budget);
  }

 private:
  void improve(int64_t budget) {
    const std::vector<char> all = simulator_.keepAll();
    if (simulator_.evaluate(all).peak <= budget) return;
    cuts_.forBudget(budget, kCutRounds);
    const int64_t share = options_.evaluations / (kRestarts + 1);
    for (int restart = 0; restart < kRestarts; ++restart) {
      local_.setPenalty(archive_.best(budget) == nullptr ? kUrgent : kRelaxed);
      local_.anneal(start(budget), budget, share, restart % 2 == 0 ? kHot : kWarm);
    }
    local_.polish(start(budget), budget, options_.evaluations - kRestarts * share);
  }

  std::vector<char> start(int64_t budget) const {
    const PlanArchive::Entry* entry = archive_.best(budget);
    return (entry == nullptr ? archive_.lowest() : entry)->keep;
  }

  ir::Plan describe(const PlanArchive::Entry& entry, int64_t budget) {
    ir::Plan plan;
    plan.keep = entry.keep;
    plan.budget = budget;
    plan.predicted_peak = entry.evaluation.peak;
    plan.recompute_seconds = entry.evaluation.recompute_seconds;
    plan.recompute_share =
        forward_seconds_ > 0 ? entry.evaluation.recompute_seconds / forward_seconds_ : 0;
    const Timeline timeline = simulator_.trace(entry.keep);
    for (const SimulationModel::Storage& storage : simulator_.model().storages) {
      const int32_t id = storage.profile_storage;
      const bool dropped = storage.candidate && !entry.keep[id];
      plan.kept += timeline.persists[id] && !dropped;
      plan.recomputed += dropped && timeline.replay_first[id] >= 0;
    }
    return plan;
  }

  PlannerOptions options_;
  double forward_seconds_;
  Simulator simulator_;
  PlanArchive archive_;
  CutSeeds cuts_;
  LocalSearch local_;
};

Planner::Planner(const PlanningInput& input, const PlannerOptions& options)
    : search_(std::make_unique<Search>(input, options)) {}

Planner::~Planner() = default;

ir::Plan Planner::plan(int64_t budget) { return search_->plan(budget); }

/// From the highest budget down, so that each search starts from its neighbour's result; then every
/// budget is answered from everything that was found.
std::vector<ir::Plan> Planner::sweep(const std::vector<int64_t>& budgets) {
  std::vector<size_t> order(budgets.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return budgets[a] > budgets[b]; });
  std::vector<double> seconds(budgets.size());
  for (size_t i : order) seconds[i] = search_->plan(budgets[i]).planning_seconds;
  std::vector<ir::Plan> plans;
  for (size_t i = 0; i < budgets.size(); ++i) {
    plans.push_back(search_->best(budgets[i]));
    plans.back().planning_seconds = seconds[i];
  }
  return plans;
}

ir::Plan Planner::minimum() { return search_->plan(0); }

ir::Plan plan(const PlanningInput& input, int64_t budget, const PlannerOptions& options) {
  return Planner(input, options).plan(budget);
}

std::vector<ir::Plan> sweep(const PlanningInput& input, const std::vector<int64_t>& budgets,
                            const PlannerOptions& options) {
  return Planner(input, options).sweep(budgets);
}

}  // namespace remat
