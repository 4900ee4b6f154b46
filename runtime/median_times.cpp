#include "runtime/median_times.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

namespace remat::runtime {

ir::Profile withMedianTimes(std::vector<ir::Profile> recordings) {
  TORCH_CHECK(!recordings.empty(), "a median of no recordings");
  ir::Profile result = recordings.back();
  std::vector<double> seconds;
  const auto median = [&](double& target, const auto& secondsOf) {
    seconds.clear();
    for (const ir::Profile& recording : recordings) {
      if (const auto found = secondsOf(recording)) seconds.push_back(*found);
    }
    std::sort(seconds.begin(), seconds.end());
    target = seconds[seconds.size() / 2];
  };
  const auto at = [](const auto& list, size_t count, size_t i) {
    return list.size() == count ? std::optional<double>(list[i].seconds) : std::nullopt;
  };
  for (size_t i = 0; i < result.nodes.size(); ++i) {
    median(result.nodes[i].seconds,
           [&](const ir::Profile& p) { return at(p.nodes, result.nodes.size(), i); });
  }
  for (size_t i = 0; i < result.backward.size(); ++i) {
    median(result.backward[i].seconds,
           [&](const ir::Profile& p) { return at(p.backward, result.backward.size(), i); });
  }
  for (const ir::Profile& recording : recordings) {
    result.step_seconds = std::min(result.step_seconds, recording.step_seconds);
  }
  return result;
}

}  // namespace remat::runtime
