#include "passes/planner.h"

#include <llvm/ADT/STLExtras.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <numeric>

#include "passes/cut_seeds.h"
#include "passes/evaluated_plan.h"
#include "passes/local_search.h"
#include "passes/lower_bound.h"
#include "passes/parallel_annealing.h"
#include "passes/plan_archive.h"
#include "passes/segment_seeds.h"
#include "passes/simulator.h"

namespace remat {
namespace {

constexpr int kPriceSteps = 60;
constexpr int kCutRounds = 60;
/// First temperatures of the annealings, as shares of the time that recomputing everything takes:
/// enough to leave any plan, or just enough to rearrange one.
constexpr double kHeats[] = {0.01, 0.2, 0.01, 0.003};
constexpr double kHot = 0.2;
constexpr double kNestHeat = 0.01;
constexpr int64_t kRestarts = std::size(kHeats);
/// What a byte above the budget costs (LocalSearch::setPenalty) once it was met, and before.
constexpr double kRelaxed = 6;
constexpr double kUrgent = 60;
/// For descents that must not leave the budget.
constexpr double kProhibitive = 1e6;
constexpr double kUrgentExcess = 1.0 / 32;
constexpr int64_t kDescents = 8;
constexpr int kMisses = 4;
/// Longer steps get fewer rounds of the bound, so that it takes about the same time.
constexpr int64_t kUsualInstants = 1000;
/// Steps with few decisions get this times their square of PlannerOptions::work.
constexpr int64_t kPerPair = 12000;
constexpr int64_t kFewDecisions = 32;
/// Larger graphs may take longer: `refine` spends the work (nodes² / this) times, ...
constexpr double kSquaredNodesPerWork = 400000;
/// ... but at least once, and at most so often.
constexpr double kMostWork = 6;
constexpr int kInsistence = 6;
constexpr int kCorrections = 4;
/// A plan this close to the bound, as a share of the forward, is the best there is.
constexpr double kTolerance = 1e-4;
constexpr size_t kHullGuides = 10;
constexpr size_t kNearGuides = 6;

int boundRounds(const PlannerOptions& options, const SimulationModel& model) {
  const auto instants = static_cast<int64_t>(model.nodes.size() + model.backward.size());
  return static_cast<int>(
      std::min<int64_t>(options.bound_rounds,
                        options.bound_rounds * kUsualInstants / std::max<int64_t>(1, instants)));
}

}  // namespace

class Planner::Search {
 public:
  Search(const PlanningInput& input, const PlannerOptions& options)
      : options_(options),
        forward_seconds_(input.profile.forwardSeconds()),
        simulator_(input),
        cuts_(simulator_, archive_),
        local_(simulator_, archive_, options.seed),
        bound_(simulator_) {
    const std::vector<int32_t> decisions = simulator_.candidates();
    const auto count = static_cast<int64_t>(decisions.size());
    work_ = std::min(options.work, kPerPair * count * count);
    const auto nodes = static_cast<double>(input.profile.nodes.size());
    refining_work_ =
        static_cast<int64_t>(static_cast<double>(work_) *
                             std::clamp(nodes * nodes / kSquaredNodesPerWork, 1.0, kMostWork));
    bound_rounds_ = boundRounds(options, simulator_.model());
    cuts_.sweepPrices(kPriceSteps);
    complete_ = static_cast<int32_t>(decisions.size()) <= options.exhaustive_decisions;
    if (complete_) simulateAll(decisions);
    std::vector<std::vector<char>> hull;
    for (const auto& [peak, entry] : archive_.entries()) hull.push_back(entry.keep);
    for (size_t i = 0; i < std::min(kHullGuides, hull.size()); ++i) {
      hull_.push_back(hull[i * hull.size() / std::min(kHullGuides, hull.size())]);
    }
  }

  ir::Plan plan(int64_t budget) {
    const auto start = std::chrono::steady_clock::now();
    if (simulator_.evaluate(simulator_.keepAll()).peak > budget) {
      if (!complete_) search(budget);
      if (options_.second_recomputation && archive_.best(budget) == nullptr) nest(budget);
      refine(budget);
    }
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

  ir::Plan lowestWithin(double seconds) {
    // From low peaks, which take long, to the highest, which takes no time.
    const PlanArchive::Entry* found = nullptr;
    for (const auto& [peak, entry] : archive_.entries()) {
      found = &entry;
      if (entry.evaluation.recompute_seconds <= seconds) break;
    }
    return describe(*found, found->evaluation.peak);
  }

 private:
  /// A plan within the budget that recomputes storages once, if there is one.
  void search(int64_t budget) {
    reach(budget);
    // A budget far below everything known is approached from above.
    if (archive_.lowest()->evaluation.peak <= budget * 5 / 4)
      improve(budget, work_, /*thorough=*/true);
    descend(budget);
    insist(budget);
  }

  void simulateAll(const std::vector<int32_t>& decisions) {
    std::vector<char> keep = simulator_.keepAll();
    for (uint32_t plan = 0; plan < 1U << decisions.size(); ++plan) {
      for (size_t i = 0; i < decisions.size(); ++i) {
        keep[decisions[i]] = static_cast<char>((plan >> i) & 1U);
      }
      archive_.offer(simulator_.evaluate(keep), keep);
    }
  }

  /// Spends the work on a budget that may be out of reach: recombine what is known, disturb,
  /// descend, recombine again. If `thorough`, then only until it is met; `refine` does the rest.
  void improve(int64_t budget, int64_t work, bool thorough) {
    cuts_.forBudget(budget, thorough ? kCutRounds : kCutRounds / 4);
    recombine(budget);
    const int64_t share = work / (kRestarts + 1);
    for (double heat : kHeats) {
      const bool met = archive_.best(budget) != nullptr;
      if (met && (thorough || isBest(budget))) return;
      local_.setPenalty(met ? kRelaxed : kUrgent, met ? 0 : kUrgentExcess);
      local_.anneal(start(budget), budget, share, heat);
      if (thorough) recombine(budget);
    }
    local_.polish(start(budget), budget, work - kRestarts * share);
  }

  /// A budget that is met (else nothing is done), in less and less time: annealings side by side,
  /// whose plans are recombined after each round.
  void refine(int64_t budget) {
    const PlanArchive::Entry* known = archive_.best(budget);
    if (known == nullptr) return;
    const bool each_time = llvm::is_contained(known->keep, ir::kRecomputeEachTime);
    if (complete_ && !each_time) return;
    ParallelAnnealing annealing(simulator_, options_.seed, each_time);
    for (int round = 0; round < ParallelAnnealing::kRounds; ++round) {
      if (isBest(budget)) return;
      annealing.anneal(round, start(budget), budget, refining_work_ / ParallelAnnealing::kRounds,
                       archive_);
      recombine(budget, annealing.results());
    }
    if (isBest(budget)) return;
    local_.setPenalty(kProhibitive, 0);
    local_.allowEachTime(each_time);
    local_.polish(start(budget), budget, work_ / (kRestarts + 1));
    local_.allowEachTime(false);
  }

  /// Whether the best known plan within the budget can't be beaten. The bound is found once, as
  /// soon as there is a plan to compare with.
  bool isBest(int64_t budget) {
    const PlanArchive::Entry* entry = archive_.best(budget);
    if (entry == nullptr) return false;
    const double seconds = entry->evaluation.recompute_seconds;
    return seconds <= boundFor(budget, seconds) + kTolerance * forward_seconds_;
  }

  double boundFor(int64_t budget, double known) {
    const auto [found, is_new] = bounds_.try_emplace(budget, 0);
    if (is_new) found->second = bound_.seconds(budget, known, bound_rounds_);
    return std::min(found->second, known);
  }

  /// A first plan within the budget, by segments alone, in steps as long as they lead down.
  void reach(int64_t budget) {
    int misses = 0;
    int64_t target = archive_.lowest()->evaluation.peak;
    while (misses < kMisses && archive_.lowest()->evaluation.peak > budget) {
      const int64_t before = archive_.lowest()->evaluation.peak;
      target = std::max(budget, std::min(target, before) * 9 / 10);
      recombine(target);
      misses += archive_.lowest()->evaluation.peak >= before;
    }
  }

  /// Lower and lower targets until the lowest peak stays where it is.
  void descend(int64_t budget) {
    for (int round = 0; round < kDescents; ++round) {
      const int64_t before = archive_.lowest()->evaluation.peak;
      if (before <= budget) return;
      const auto target = static_cast<int64_t>(static_cast<double>(before) * 0.97);
      improve(std::max(budget, target), work_ / (2 * kDescents), /*thorough=*/false);
    }
  }

  /// Deep budgets: with storages that are recomputed for every use.
  void nest(int64_t budget) {
    std::vector<std::vector<char>> plans = hull_;
    plans.push_back(archive_.lowest()->keep);
    if (work_ < options_.work) plans.push_back(simulator_.dropAll());
    for (std::vector<char>& keep : plans) {
      std::replace(keep.begin(), keep.end(), static_cast<char>(ir::kRecompute),
                   static_cast<char>(ir::kRecomputeEachTime));
      archive_.offer(simulator_.evaluate(keep), keep);
    }
    local_.allowEachTime(true);
    for (int round = 0; round < kDescents; ++round) {
      const int64_t before = archive_.lowest()->evaluation.peak;
      if (before <= budget) break;
      const int64_t target = std::max(budget, before - before / 32);
      local_.setPenalty(kUrgent, kUrgentExcess);
      local_.anneal(archive_.lowest()->keep, target, work_ / (5 * kDescents),
                    round % 2 == 0 ? kHot : kNestHeat);
    }
    local_.allowEachTime(false);
  }

  /// A budget that looks out of reach, though no proof says so, is tried from other starts: with
  /// everything dropped, from the lowest peak with much heat, and from anywhere.
  void insist(int64_t budget) {
    if (archive_.best(budget) != nullptr || bound_.peak() > budget) return;
    const bool near = archive_.lowest()->evaluation.peak <= budget * 9 / 8;
    if (!near && work_ > kPerPair * kFewDecisions * kFewDecisions) return;
    local_.setPenalty(kUrgent, kUrgentExcess);
    const std::vector<char> lowest = archive_.lowest()->keep;
    for (int attempt = 0; attempt < kInsistence; ++attempt) {
      const std::vector<char> start = attempt == 0   ? simulator_.dropAll()
                                      : attempt == 1 ? lowest
                                                     : local_.anywhere();
      local_.anneal(start, budget, work_ / 4, kHot);
      local_.polish(archive_.lowest()->keep, budget, work_ / 4);
      if (archive_.best(budget) == nullptr) continue;
      local_.polish(archive_.best(budget)->keep, budget, work_ / 4);
      return;
    }
  }

  /// Segments of known plans put together anew. The dynamic program's own idea of a plan's peak is
  /// corrected by the simulator's a few times. `further` plans join those that show the way.
  void recombine(int64_t budget, std::vector<std::vector<char>> further = {}) {
    std::vector<std::vector<char>> plans = guides(budget);
    std::move(further.begin(), further.end(), std::back_inserter(plans));
    const SegmentSeeds segments(simulator_, plans);
    int64_t target = budget;
    for (int round = 0; round < kCorrections; ++round) {
      const std::vector<char> keep = segments.solve(target);
      if (keep.empty()) {
        target += budget / 24;
        continue;
      }
      const Evaluation evaluation = simulator_.evaluate(keep);
      archive_.offer(evaluation, keep);
      const int64_t off = budget - evaluation.peak;
      target += off < 0 ? off : std::max(off, budget / 256);
    }
  }

  /// The hull's plans, which show every price's taste, and the budget's neighbours.
  std::vector<std::vector<char>> guides(int64_t budget) const {
    std::vector<std::vector<char>> plans = hull_;
    const auto& entries = archive_.entries();
    auto at = entries.upper_bound(budget);
    for (size_t i = 0; i < kNearGuides / 2 && at != entries.begin(); ++i) --at;
    for (size_t i = 0; i < kNearGuides && at != entries.end(); ++i, ++at) {
      plans.push_back(at->second.keep);
    }
    return plans;
  }

  std::vector<char> start(int64_t budget) const {
    const PlanArchive::Entry* entry = archive_.best(budget);
    return (entry == nullptr ? archive_.lowest() : entry)->keep;
  }

  ir::Plan describe(const PlanArchive::Entry& entry, int64_t budget) {
    ir::Plan plan = evaluatedPlan(simulator_, entry.keep, forward_seconds_);
    plan.budget = budget;
    plan.peak_bound = bound_.peak();
    if (plan.predicted_peak <= budget && plan.recompute_seconds > 0) {
      plan.lower_bound_seconds = boundFor(budget, plan.recompute_seconds);
      plan.lower_bound_share = plan.lower_bound_seconds / forward_seconds_;
    }
    return plan;
  }

  PlannerOptions options_;
  double forward_seconds_;
  Simulator simulator_;
  PlanArchive archive_;
  CutSeeds cuts_;
  LocalSearch local_;
  LowerBound bound_;
  std::map<int64_t, double> bounds_;  ///< by budget, seconds
  int bound_rounds_ = 0;
  bool complete_ = false;                ///< the archive has seen every plan
  int64_t work_ = 0;                     ///< per budget
  int64_t refining_work_ = 0;            ///< of `refine`, per budget
  std::vector<std::vector<char>> hull_;  ///< plans of the first cuts, from low to high peaks
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

ir::Plan Planner::known(int64_t budget) { return search_->best(budget); }

ir::Plan Planner::lowestWithin(double seconds) { return search_->lowestWithin(seconds); }

ir::Plan Planner::minimum() { return search_->plan(0); }

void proveBounds(const PlanningInput& input, ir::Plan& plan) {
  Simulator simulator(input);
  LowerBound bound(simulator);
  plan.peak_bound = bound.peak();
  plan.lower_bound_seconds = plan.lower_bound_share = 0;
  if (plan.recompute_seconds <= 0) return;
  plan.lower_bound_seconds = std::min(
      plan.recompute_seconds,
      bound.seconds(plan.budget > 0 ? plan.budget : plan.predicted_peak, plan.recompute_seconds,
                    boundRounds(PlannerOptions(), simulator.model())));
  plan.lower_bound_share = plan.lower_bound_seconds / input.profile.forwardSeconds();
}

ir::Plan plan(const PlanningInput& input, int64_t budget, const PlannerOptions& options) {
  return Planner(input, options).plan(budget);
}

std::vector<ir::Plan> sweep(const PlanningInput& input, const std::vector<int64_t>& budgets,
                            const PlannerOptions& options) {
  return Planner(input, options).sweep(budgets);
}

}  // namespace remat
