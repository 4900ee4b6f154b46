#include "passes/local_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace remat {
namespace {

/// The last temperature, as a share of the time that recomputing everything takes.
constexpr double kCold = 2e-5;
/// Exchanges reach this many neighbours to either side.
constexpr int32_t kNeighbourhood = 12;
constexpr int32_t kLongestRun = 12;

}  // namespace

uint64_t SplitMix::next() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

LocalSearch::LocalSearch(Simulator& simulator, PlanArchive& archive, uint64_t seed)
    : simulator_(simulator), archive_(archive), random_(seed) {
  const std::vector<char> all = simulator.keepAll();
  const Evaluation kept = simulator.evaluate(all);
  archive.offer(kept, all);
  const std::vector<char> none = simulator.dropAll();
  const Timeline timeline = simulator.trace(none);
  archive.offer(timeline.evaluation, none);
  decisions_ = simulator.candidates();
  for (size_t i = 0; i < decisions_.size(); ++i) {
    if (timeline.replay_first[decisions_[i]] >= 0) reached_.push_back(static_cast<int32_t>(i));
  }
  reachable_seconds_ = timeline.evaluation.recompute_seconds;
  penalty_unit_ = reachable_seconds_ / std::max<double>(1, static_cast<double>(kept.peak));
}

void LocalSearch::setPenalty(double weight, double excess_weight) {
  penalty_per_byte_ = weight * penalty_unit_;
  excess_weight_ = excess_weight;
}

double LocalSearch::cost(const Evaluation& evaluation, int64_t budget) const {
  const auto above = static_cast<double>(std::max<int64_t>(0, evaluation.peak - budget));
  const double excess = excess_weight_ * static_cast<double>(evaluation.excess);
  return evaluation.recompute_seconds + penalty_per_byte_ * (above + excess);
}

void LocalSearch::set(int32_t decision, char value) {
  char& present = keep_[decisions_[decision]];
  changed_.push_back({decision, present});
  present = value;
}

void LocalSearch::flip(int32_t decision) {
  set(decision, isKept(decision) ? ir::kRecompute : ir::kKeep);
}

void LocalSearch::undo() {
  for (auto change = changed_.rbegin(); change != changed_.rend(); ++change) {
    keep_[decisions_[change->decision]] = change->before;
  }
}

void LocalSearch::propose() {
  changed_.clear();
  const auto count = static_cast<int32_t>(decisions_.size());
  const int32_t kind = random_.below(each_time_ ? 30 : 20);
  const bool any = reached_.empty() || random_.below(8) == 0;
  const int32_t first =
      any ? random_.below(count) : reached_[random_.below(static_cast<int32_t>(reached_.size()))];
  if (kind < 9) {
    flip(first);
    return;
  }
  if (kind < 15) {
    flip(first);
    const int32_t reach = std::min(count - 1, kNeighbourhood);
    for (int32_t attempt = 0; attempt < 4 && reach > 0; ++attempt) {
      const int32_t second = first - reach + random_.below(2 * reach + 1);
      if (second < 0 || second >= count || second == first) continue;
      // The first is flipped already: unlike before, like now.
      if (isKept(second) != isKept(first)) continue;
      flip(second);
      return;
    }
    return;
  }
  const bool one = kind >= 20 && kind < 25;
  const int32_t last = one ? first + 1 : std::min(count, first + 2 + random_.below(kLongestRun));
  const auto target = static_cast<char>(kind < 17   ? ir::kRecompute
                                        : kind < 20 ? ir::kKeep
                                                    : ir::kRecomputeEachTime);
  for (int32_t decision = first; decision < last; ++decision) {
    const char present = keep_[decisions_[decision]];
    // Undone by the same move.
    if (one && present == target) {
      set(decision, ir::kRecompute);
    } else if (present != target && (kind < 20 || present == ir::kRecompute || one)) {
      set(decision, target);
    }
  }
}

Evaluation LocalSearch::evaluate(double cost_limit, int64_t budget) {
  EvaluationLimits limits;
  limits.recompute_seconds = cost_limit;
  limits.soft_peak = budget;
  limits.seconds_per_byte = penalty_per_byte_;
  Evaluation evaluation = simulator_.evaluate(keep_, limits);
  archive_.offer(evaluation, keep_);
  return evaluation;
}

std::vector<char> LocalSearch::anywhere() {
  std::vector<char> keep = simulator_.keepAll();
  for (int32_t storage : decisions_) keep[storage] = static_cast<char>(random_.below(2));
  return keep;
}

std::vector<char> LocalSearch::anneal(std::vector<char> keep, int64_t budget, int64_t work,
                                      double hot) {
  if (decisions_.empty()) return keep;
  keep_ = std::move(keep);
  const int64_t begin = simulator_.work();
  double current = cost(evaluate(std::numeric_limits<double>::infinity(), budget), budget);
  std::vector<char> best = keep_;
  double lowest = current;
  for (int64_t idle = 0;;) {
    const int64_t spent = simulator_.work() - begin + idle;
    if (spent >= work) return best;
    const double progress = static_cast<double>(spent) / static_cast<double>(work);
    const double temperature = hot * reachable_seconds_ * std::pow(kCold / hot, progress);
    propose();
    if (changed_.empty()) {
      ++idle;
      continue;
    }
    const double limit = current - temperature * std::log(random_.unit());
    const Evaluation evaluation = evaluate(limit, budget);
    const double proposed = cost(evaluation, budget);
    if (!evaluation.aborted && proposed <= limit) {
      current = proposed;
    } else {
      undo();
    }
    if (current < lowest) {
      lowest = current;
      best = keep_;
    }
  }
}

/// Tries all flips or all exchanges once, taking each that helps; false if none did.
bool LocalSearch::improveBy(int64_t budget, int64_t end, double& current, bool pairs) {
  const auto count = static_cast<int32_t>(decisions_.size());
  bool improved = false;
  auto attempt = [&] {
    if (simulator_.work() >= end) return undo();
    const Evaluation evaluation = evaluate(current, budget);
    const double proposed = cost(evaluation, budget);
    // Rounding in sums of seconds must not look like progress for ever.
    if (evaluation.aborted || proposed >= current - 1e-9 * reachable_seconds_) return undo();
    current = proposed;
    improved = true;
  };
  for (int32_t first = 0; first < count; ++first) {
    if (!pairs) {
      changed_.clear();
      flip(first);
      attempt();
      if (!each_time_ || isKept(first)) continue;
      changed_.clear();
      const bool again = keep_[decisions_[first]] == ir::kRecomputeEachTime;
      set(first, again ? ir::kRecompute : ir::kRecomputeEachTime);
      attempt();
      continue;
    }
    for (int32_t second = first + 1; second < count && simulator_.work() < end; ++second) {
      if (isKept(first) == isKept(second)) continue;
      changed_.clear();
      flip(first);
      flip(second);
      attempt();
    }
  }
  return improved;
}

void LocalSearch::polish(std::vector<char> keep, int64_t budget, int64_t work) {
  keep_ = std::move(keep);
  const int64_t end = simulator_.work() + work;
  double current = cost(evaluate(std::numeric_limits<double>::infinity(), budget), budget);
  while (simulator_.work() < end) {
    if (improveBy(budget, end, current, false)) continue;
    if (!improveBy(budget, end, current, true)) return;
  }
}

}  // namespace remat
