#include "runtime/python/request.h"

#include <c10/core/Device.h>

#include <stdexcept>

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include "passes/plan_file.h"
#include "tools/budget.h"

namespace remat::python {
namespace {

namespace json = llvm::json;

/// Parsers of the tool's options, with the option's name in front of what they say.
template <typename Parse>
auto naming(const char* option, const Parse& parse) {
  try {
    return parse();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string(option) + " " + error.what());
  }
}

struct Texts {
  std::string budget;
  std::vector<std::string> budgets;
  std::string loss;
  std::string reserve;
};

bool read(const json::Value& value, json::Path path, Request& request, Texts& texts) {
  OptimizeOptions& options = request.options;
  json::ObjectMapper map(value, path);
  return map && map.mapOptional("method", options.method) &&
         map.mapOptional("budget", texts.budget) && map.mapOptional("budgets", texts.budgets) &&
         map.mapOptional("loss", texts.loss) &&
         map.mapOptional("autocast", options.step.autocast) &&
         map.mapOptional("device", options.step.device) &&
         map.mapOptional("deterministic", options.step.deterministic) &&
         map.mapOptional("reserve", texts.reserve) &&
         map.mapOptional("max_overhead", options.max_overhead) &&
         map.mapOptional("allow_ops", options.allow_ops) &&
         map.mapOptional("keep", options.keep_modules) &&
         map.mapOptional("recompute", options.recompute_modules) &&
         map.mapOptional("measure", options.measure) &&
         map.mapOptional("plan", options.plan_json) &&
         map.mapOptional("profile", options.profile_json) &&
         map.mapOptional("profile_batches", options.profile_batches) &&
         map.mapOptional("batch_dim", options.batch_dim);
}

/// A plan brings its budget along.
Budget budgetOfPlan(const std::string& plan_json) {
  try {
    const SavedPlan saved = savedPlanFromJson(plan_json);
    Budget budget;
    budget.kind = saved.budget > 0 ? Budget::Kind::kBytes : Budget::Kind::kMinimum;
    budget.bytes = saved.budget;
    return budget;
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(std::string("plan is none that remat.save_plan or remat-opt "
                                            "wrote: ") +
                                error.what());
  }
}

}  // namespace

Request requestFromJson(const std::string& text) {
  llvm::Expected<json::Value> parsed = json::parse(text);
  if (!parsed) throw std::invalid_argument(llvm::toString(parsed.takeError()));
  Request request;
  Texts texts;
  json::Path::Root root("options");
  if (!read(*parsed, root, request, texts)) {
    throw std::invalid_argument(llvm::toString(root.getError()));
  }
  OptimizeOptions& options = request.options;
  if (!texts.budget.empty()) {
    options.budget = naming("budget", [&] { return tools::parseBudget(texts.budget); });
  }
  if (options.max_overhead >= 0) options.budget.kind = Budget::Kind::kMinimum;
  if (!options.plan_json.empty()) options.budget = budgetOfPlan(options.plan_json);
  for (const std::string& budget : texts.budgets) {
    request.budgets.push_back(naming("budgets", [&] { return tools::parseBudget(budget); }));
  }
  if (!texts.reserve.empty()) {
    options.reserve_bytes = naming("reserve", [&] { return tools::parseBytes(texts.reserve); });
  }
  if (texts.loss == "cross_entropy") options.step.loss = StepOptions::Loss::kCrossEntropy;
  return request;
}

}  // namespace remat::python
