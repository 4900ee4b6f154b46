#include "passes/recorded_lives.h"

namespace remat {

std::vector<Life> recordedLives(const ir::Profile& profile) {
  std::vector<Life> lives(profile.storages.size());
  int32_t position = 0;
  const auto note = [&](const std::vector<ir::Event>& events) {
    for (const ir::Event& event : events) {
      if (event.kind == ir::EventKind::kAlloc) lives[event.id] = {position, -1};
      if (event.kind == ir::EventKind::kFree) lives[event.id].until = position;
    }
    ++position;
  };
  for (const ir::NodeProfile& node : profile.nodes) note(node.events);
  for (const ir::BackwardStep& step : profile.backward) note(step.events);
  return lives;
}

}  // namespace remat
