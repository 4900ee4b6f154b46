#include "passes/parallel_annealing.h"

#include <llvm/Support/ThreadPool.h>

#include <iterator>

#include "passes/local_search.h"

namespace remat {
namespace {

/// LocalSearch::setPenalty's weights, one per annealing. Cheap bytes let a plan wander through
/// those that are too large, and lead to others; dear ones keep it where it counts.
constexpr double kPenalties[] = {1.5, 6, 1.5, 3};
constexpr size_t kLanes = std::size(kPenalties);
constexpr uint64_t kSeedStride = 7919;
/// First temperatures, as LocalSearch::anneal takes them: of the first round's later half, of the
/// last round, and of all others.
constexpr double kHot = 0.2;
constexpr double kWarm = 0.02;
constexpr double kLast = 0.005;

double heat(int round, size_t lane) {
  if (round + 1 == ParallelAnnealing::kRounds) return kLast;
  return round == 0 && lane >= kLanes / 2 ? kHot : kWarm;
}

}  // namespace

struct ParallelAnnealing::Lane {
  Lane(const Simulator& from, uint64_t seed, double penalty)
      : simulator(from), local(simulator, archive, seed) {
    local.setPenalty(penalty, 0);
  }

  Simulator simulator;
  PlanArchive archive;
  LocalSearch local;
  std::vector<char> result;
};

ParallelAnnealing::ParallelAnnealing(const Simulator& simulator, uint64_t seed, bool each_time) {
  for (size_t i = 0; i < kLanes; ++i) {
    lanes_.push_back(std::make_unique<Lane>(simulator, seed * kSeedStride + i, kPenalties[i]));
    lanes_.back()->local.allowEachTime(each_time);
  }
}

ParallelAnnealing::~ParallelAnnealing() = default;

void ParallelAnnealing::anneal(int round, const std::vector<char>& best, int64_t budget,
                               int64_t work, PlanArchive& archive) {
  llvm::ThreadPool threads;
  for (size_t i = 0; i < kLanes; ++i) {
    threads.async([&, i] {
      Lane& lane = *lanes_[i];
      const bool own = i % 2 == 1 && round > 0 && round + 1 < kRounds;
      lane.result = lane.local.anneal(own ? lane.result : best, budget,
                                      work / static_cast<int64_t>(kLanes), heat(round, i));
    });
  }
  threads.wait();
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    for (const auto& [peak, entry] : lane->archive.entries()) {
      archive.offer(entry.evaluation, entry.keep);
    }
  }
}

std::vector<std::vector<char>> ParallelAnnealing::results() const {
  std::vector<std::vector<char>> plans;
  for (const std::unique_ptr<Lane>& lane : lanes_) plans.push_back(lane->result);
  return plans;
}

}  // namespace remat
