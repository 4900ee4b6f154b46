#include "tools/max_batch.h"

#include <cstdio>

#include "ir/remark.h"
#include "passes/max_batch.h"
#include "tools/device_budget.h"
#include "tools/device_options.h"
#include "tools/errors.h"
#include "tools/planning_session.h"
#include "tools/report.h"
#include "tools/stdout_to_stderr.h"

namespace remat::tools {
namespace {

llvm::json::Value toJson(const MaxBatch& found) {
  llvm::json::Object object{{"max_batch", found.batch},
                            {"max_batch_without_remat", found.without_remat},
                            {"predicted_from_batches", llvm::json::Array(found.from)},
                            {"budget", found.plan.budget},
                            {"predicted_peak", found.plan.predicted_peak},
                            {"recompute_share", found.plan.recompute_share},
                            {"recompute_seconds", found.plan.recompute_seconds},
                            {"lower_bound_share", found.plan.lower_bound_share},
                            {"gap", found.plan.gap()}};
  addOrigin(found.profile, object);
  return object;
}

void print(const MaxBatch& found) {
  const ir::Plan& plan = found.plan;
  std::printf("largest batch %lld, predicted, from batches %lld and %lld\n",
              static_cast<long long>(found.batch), static_cast<long long>(found.from.at(0)),
              static_cast<long long>(found.from.at(1)));
  if (!found.profile.recorded_on.empty()) {
    std::printf("all of it %s\n", derivationText(found.profile).c_str());
  }
  std::printf("  %-16s%12s  for a step\n", "budget", ir::formatBytes(plan.budget).c_str());
  std::printf("  %-16s%12s\n", "predicted peak", ir::formatBytes(plan.predicted_peak).c_str());
  std::printf("  %-16s%12s  of one forward, at most %s more than the least possible\n",
              "recomputed", percent(plan.recompute_share).c_str(), percent(plan.gap()).c_str());
  std::printf("  %-16s%12lld  is the largest batch\n", "without Remat",
              static_cast<long long>(found.without_remat));
}

}  // namespace

void checkMaxBatch(const MaxBatchRequest& request, const PlanningOptions& planning) {
  const bool bytes =
      request.budgets.size() == 1 && budgetOption(request.budgets[0]).kind == Budget::Kind::kBytes;
  if (request.budgets.empty() == planning.device_memory.empty() ||
      (!request.budgets.empty() && !bytes)) {
    throw usage("--max-batch needs one --budget in bytes, as 900MB, or --device-memory");
  }
  if (!planning.profile.empty() || !planning.save_profile.empty() || !planning.save_plan.empty()) {
    throw usage(
        "--max-batch records profiles of its own; leave out --profile, --save-profile and "
        "--save-plan");
  }
  deviceMemoryOption(planning);
}

void printMaxBatch(const MaxBatchRequest& request, const PlanningOptions& planning,
                   const Session& session, OptimizeOptions options) {
  const MemorySize memory = deviceMemoryOption(planning);
  const int64_t given = memory.given() ? 0 : budgetOption(request.budgets[0]).bytes;
  const MemoryCapacity capacity =
      memory.given() ? memoryCapacity(memory, options) : MemoryCapacity{};
  const int64_t reserve = options.reserve_bytes;
  const auto device = [&](int64_t batch) {
    return deviceBudget(capacity, optimizerOption(planning), reserve, session.file.module,
                        shapesAtBatch(session.inputs, options.batch_dim, batch));
  };
  StdoutToStderr model_output;
  const MaxBatch found = naming(session.file.path, [&] {
    if (options.profile_batches.empty()) {
      options.profile_batches = defaultProfileBatches(session.inputs, options.batch_dim);
    }
    return maxBatch(session.file.module, session.inputs, options, [&](int64_t batch) {
      return memory.given() ? device(batch).step_bytes : given - reserve;
    });
  });
  model_output.restore();
  printProfileNotes(found.profile, session.step);
  if (memory.given()) {
    std::fprintf(request.json ? stderr : stdout, "%s", device(found.batch).text.c_str());
  }
  if (request.json) {
    std::printf("%s", jsonText(toJson(found)).c_str());
  } else {
    print(found);
  }
  std::fflush(stdout);
}

}  // namespace remat::tools
