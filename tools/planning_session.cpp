#include "tools/planning_session.h"

#include <algorithm>
#include <cstdio>

#include "tools/errors.h"

namespace remat::tools {

void rethrowNamed(const std::string& model, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ToolError&) {
    throw;
  } catch (const BudgetError& budget) {
    throw ToolError(kOverBudget, model + ": " + budget.what());
  } catch (const std::exception& other) {
    throw refused(model + ": " + oneLine(other));
  }
}

void printRemarks(std::vector<ir::Remark> remarks) {
  std::stable_sort(remarks.begin(), remarks.end(), [](const ir::Remark& a, const ir::Remark& b) {
    return a.saved_bytes > b.saved_bytes;
  });
  for (const ir::Remark& remark : remarks) std::fprintf(stderr, "%s\n", ir::str(remark).c_str());
}

void printNotes(const Session& session) {
  if (session.step.loss == StepOptions::Loss::kRandomGradients) {
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

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

}  // namespace remat::tools
