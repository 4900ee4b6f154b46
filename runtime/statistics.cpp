#include "runtime/statistics.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "runtime/device.h"
#include "runtime/device_timer.h"

namespace remat::runtime {
namespace {

std::atomic<bool> g_on{false};
std::atomic<int64_t> g_replayed{0};

/// Timers of accelerators know their time when the device has come so far.
struct Times {
  std::mutex mutex;
  double seconds[2] = {0, 0};  ///< of each kind
  std::vector<std::pair<StatisticsTimer::Kind, std::unique_ptr<DeviceTimer>>> queued;
};

/// Never destroyed: events need their driver, which may be gone before.
Times& times() {
  static auto* const instance = new Times;
  return *instance;
}

size_t indexOf(StatisticsTimer::Kind kind) { return static_cast<size_t>(kind); }

}  // namespace

void enableStatistics(bool on) { g_on = on; }

bool statisticsEnabled() { return g_on.load(std::memory_order_relaxed); }

StepStatistics takeStatistics() {
  Times taken;
  {
    Times& all = times();
    const std::lock_guard<std::mutex> lock(all.mutex);
    std::swap(taken.seconds, all.seconds);
    taken.queued.swap(all.queued);
  }
  for (const auto& [kind, timer] : taken.queued) {
    taken.seconds[indexOf(kind)] += timer->seconds();
  }
  StepStatistics result;
  result.forward_seconds = taken.seconds[indexOf(StatisticsTimer::Kind::kForward)];
  result.replay_seconds = taken.seconds[indexOf(StatisticsTimer::Kind::kReplay)];
  result.replayed_nodes = g_replayed.exchange(0);
  return result;
}

StatisticsTimer::StatisticsTimer(Kind kind, c10::Device device) : kind_(kind), device_(device) {
  if (!statisticsEnabled()) return;
  // What is captured runs later, and as often as its graph does: there is no time to tell.
  const DeviceInterface* known = findDevice(device.type());
  if (known != nullptr && known->currentCapture(device) != 0) return;
  timer_ = std::make_unique<DeviceTimer>(device);
}

StatisticsTimer::~StatisticsTimer() {
  if (timer_ == nullptr) return;
  if (kind_ == Kind::kReplay) g_replayed++;
  try {
    timer_->stop();
    Times& all = times();
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (device_.is_cpu()) {
      all.seconds[indexOf(kind_)] += timer_->seconds();
    } else {
      all.queued.emplace_back(kind_, std::move(timer_));
    }
  } catch (const std::exception&) {
    // The device is in an error, which the operator's caller is told by the next call.
    timer_.reset();
  }
}

}  // namespace remat::runtime
