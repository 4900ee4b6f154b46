#include "passes/plan_archive.h"

#include <iterator>

namespace remat {

bool PlanArchive::offer(const Evaluation& evaluation, const std::vector<char>& keep) {
  if (evaluation.aborted) return false;
  const Entry* better = best(evaluation.peak);
  if (better != nullptr && better->evaluation.recompute_seconds <= evaluation.recompute_seconds) {
    return false;
  }
  auto next = entries_.lower_bound(evaluation.peak);
  while (next != entries_.end() &&
         next->second.evaluation.recompute_seconds >= evaluation.recompute_seconds) {
    next = entries_.erase(next);
  }
  entries_.emplace_hint(next, evaluation.peak, Entry{evaluation, keep});
  return true;
}

const PlanArchive::Entry* PlanArchive::best(int64_t budget) const {
  auto above = entries_.upper_bound(budget);
  return above == entries_.begin() ? nullptr : &std::prev(above)->second;
}

const PlanArchive::Entry* PlanArchive::lowest() const {
  return entries_.empty() ? nullptr : &entries_.begin()->second;
}

}  // namespace remat
