#include "passes/choices.h"

#include <fnmatch.h>

#include <algorithm>
#include <vector>

#include "passes/marks.h"
#include "passes/simulator.h"

namespace remat {
namespace {

constexpr size_t kShownPaths = 6;

const std::string* matching(const std::vector<std::string>& globs, const std::string& path) {
  const auto found = std::find_if(globs.begin(), globs.end(), [&](const std::string& glob) {
    return matchesModule(glob, path);
  });
  return found == globs.end() ? nullptr : &*found;
}

std::string somePaths(const std::set<std::string>& paths) {
  std::string text;
  size_t shown = 0;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    if (shown == kShownPaths) return text + ", …";
    text += (text.empty() ? "" : ", ") + path;
    ++shown;
  }
  return text;
}

std::string unmatched(const char* option, const std::vector<std::string>& globs,
                      const std::set<std::string>& paths, const std::string& method) {
  for (const std::string& glob : globs) {
    if (std::any_of(paths.begin(), paths.end(),
                    [&](const std::string& path) { return matchesModule(glob, path); })) {
      continue;
    }
    const std::string known = somePaths(paths);
    return std::string(option) + " '" + glob + "' matches no module of " + method + "; " +
           (known.empty() ? "it has no modules: leave it out" : "its modules are " + known);
  }
  return "";
}

}  // namespace

bool matchesModule(const std::string& glob, const std::string& path) {
  for (size_t end = path.find('.'); end != std::string::npos; end = path.find('.', end + 1)) {
    if (fnmatch(glob.c_str(), path.substr(0, end).c_str(), 0) == 0) return true;
  }
  return fnmatch(glob.c_str(), path.c_str(), 0) == 0;
}

std::string wrongChoice(const std::set<std::string>& paths, const OptimizeOptions& options) {
  std::string wrong = unmatched("keep", options.keep_modules, paths, options.method);
  if (wrong.empty()) {
    wrong = unmatched("recompute", options.recompute_modules, paths, options.method);
  }
  if (!wrong.empty()) return wrong;
  for (const std::string& path : paths) {
    const std::string* keep = matching(options.keep_modules, path);
    const std::string* recompute = matching(options.recompute_modules, path);
    if (keep == nullptr || recompute == nullptr) continue;
    return "keep '" + *keep + "' and recompute '" + *recompute + "' both match module " +
           (path.empty() ? "code outside of submodules" : path) + "; let one of them leave it out";
  }
  return "";
}

void applyChoices(const OptimizeOptions& options, PlanningInput& input) {
  if (options.keep_modules.empty() && options.recompute_modules.empty()) return;
  const ir::Profile& profile = input.profile;
  input.forced.assign(profile.storages.size(), PlanningInput::kFree);
  const std::vector<int32_t> roots = storageRoots(profile);
  for (size_t storage = 0; storage < roots.size(); ++storage) {
    if (roots[storage] < 0) continue;
    const int32_t producer = profile.values[roots[storage]].producer;
    if (producer < 0) continue;
    const std::string& path = profile.nodes[producer].module_path;
    if (matching(options.keep_modules, path) != nullptr) {
      input.forced[storage] = ir::kKeep;
    } else if (matching(options.recompute_modules, path) != nullptr) {
      input.forced[storage] = ir::kRecompute;
    }
  }
}

void settleChoices(const PlanningInput& input, ir::Plan& plan) {
  if (input.forced.empty()) return;
  Simulator simulator(input);
  const Timeline timeline = simulator.trace(plan.keep);
  for (const int32_t storage : simulator.candidates()) {
    if (input.forced[storage] != ir::kRecompute || plan.keep[storage] != ir::kKeep) continue;
    plan.keep[storage] = ir::kRecompute;
    plan.kept -= timeline.persists[storage] != 0 ? 1 : 0;
    plan.recomputed += timeline.replay_first[storage] >= 0 ? 1 : 0;
  }
}

}  // namespace remat
