#include "runtime/statistics.h"

#include <atomic>

namespace remat::runtime {
namespace {

std::atomic<bool> g_on{false};
std::atomic<int64_t> g_forward_ns{0};
std::atomic<int64_t> g_replay_ns{0};
std::atomic<int64_t> g_replayed{0};

}  // namespace

void enableStatistics(bool on) { g_on = on; }

StepStatistics takeStatistics() {
  StepStatistics taken;
  taken.forward_seconds = static_cast<double>(g_forward_ns.exchange(0)) * 1e-9;
  taken.replay_seconds = static_cast<double>(g_replay_ns.exchange(0)) * 1e-9;
  taken.replayed_nodes = g_replayed.exchange(0);
  return taken;
}

StatisticsTimer::StatisticsTimer(Kind kind)
    : kind_(kind), on_(g_on.load(std::memory_order_relaxed)) {
  if (on_) {
    start_ = std::chrono::steady_clock::now();
  }
}

StatisticsTimer::~StatisticsTimer() {
  if (!on_) {
    return;
  }
  const auto spent = std::chrono::steady_clock::now() - start_;
  const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  if (kind_ == Kind::kForward) {
    g_forward_ns += ns;
  } else {
    g_replay_ns += ns;
    g_replayed++;
  }
}

}  // namespace remat::runtime
