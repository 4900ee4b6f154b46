#include "tools/planning_session.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "passes/deterministic_scope.h"
#include "passes/retarget.h"
#include "tools/errors.h"

namespace remat::tools {
namespace {

struct Counted {
  ir::Remark remark;
  int count = 0;
};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Remarks that read alike but for their bytes as one, with the sum of them; largest first.
std::vector<Counted> merged(std::vector<ir::Remark> remarks) {
  std::vector<Counted> result;
  std::map<std::string, size_t> known;  // text to position in the result
  for (ir::Remark& remark : remarks) {
    const int64_t bytes = std::exchange(remark.saved_bytes, 0);
    const size_t place = known.emplace(ir::str(remark), result.size()).first->second;
    if (place == result.size()) result.push_back({std::move(remark)});
    result[place].remark.saved_bytes += bytes;
    ++result[place].count;
  }
  std::stable_sort(result.begin(), result.end(), [](const Counted& a, const Counted& b) {
    return a.remark.saved_bytes > b.remark.saved_bytes;
  });
  return result;
}

}  // namespace

void rethrowNamed(const std::string& model, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ToolError&) {
    throw;
  } catch (const BudgetError& budget) {
    throw ToolError(kOverBudget, model + ": " + budget.what());
  } catch (const ChoiceError& choice) {
    throw usage(model + ": " + choice.what());
  } catch (const std::exception& other) {
    throw refused(model + ": " + oneLine(other));
  }
}

void printRemarks(std::vector<ir::Remark> remarks) {
  for (const auto& [remark, count] : merged(std::move(remarks))) {
    const std::string times = count > 1 ? " (" + std::to_string(count) + " times)" : "";
    std::fprintf(stderr, "%s%s\n", ir::str(remark).c_str(), times.c_str());
  }
}

void printNotes(const Session& session) {
  if (session.step.loss == StepOptions::Loss::kRandomGradients && !session.scalar_output) {
    std::fprintf(
        stderr,
        "note: the step ends at the model's output; a loss outside of it takes memory of its own "
        "(--loss cross_entropy, --reserve)\n");
  }
  if (!session.file.module.is_training()) {
    std::fprintf(
        stderr,
        "note: %s was saved in evaluation mode: dropout is off and norms use their running "
        "statistics\n",
        session.file.path.c_str());
  }
}

void printProfileNotes(const ir::Profile& profile, const StepOptions& step) {
  const std::vector<std::string> different = nondeterministicOps(profile);
  if (!different.empty() && !step.deterministic) {
    std::fprintf(stderr,
                 "note: on %s kernels of %s may give other last bits from run to run, in the "
                 "original and in a replay; --deterministic takes ones that don't\n",
                 profile.device.c_str(), joined(different).c_str());
  }
  if (profile.recorded_on.empty()) return;
  const std::vector<std::string> other = otherInternals(profile);
  std::fprintf(stderr, "note: bytes are those of a step on %s: workspaces differ on %s%s%s\n",
               profile.recorded_on.c_str(), profile.device.c_str(),
               other.empty() ? "" : ", and what is saved inside of ", joined(other).c_str());
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

}  // namespace remat::tools
