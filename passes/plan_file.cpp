#include "passes/plan_file.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/Support/FormatVariadic.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "ir/json_text.h"
#include "passes/evaluated_plan.h"
#include "passes/graph_hash.h"
#include "passes/internals.h"
#include "passes/marks.h"
#include "passes/roofline.h"
#include "passes/simulator.h"

namespace remat {
namespace {

namespace json = llvm::json;

/// By ir::Decision.
constexpr std::array<const char*, 3> kWords{"recompute", "keep", "recompute each time"};
/// The format nests two deep.
constexpr int kMaxDepth = 8;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("plan: " + what); }

const json::Value& at(const json::Object& object, llvm::StringRef key) {
  const json::Value* value = object.get(key);
  if (value == nullptr) fail("'" + key.str() + "' is missing");
  return *value;
}

std::string stringAt(const json::Object& object, llvm::StringRef key) {
  const auto value = at(object, key).getAsString();
  if (!value) fail("'" + key.str() + "' is not a string");
  return value->str();
}

int64_t bytesAt(const json::Object& object, llvm::StringRef key) {
  const auto value = at(object, key).getAsInteger();
  if (!value || *value < 0) fail("'" + key.str() + "' is not a number of bytes");
  return *value;
}

double shareAt(const json::Object& object, llvm::StringRef key) {
  const auto value = at(object, key).getAsNumber();
  if (!value || !(*value >= 0)) fail("'" + key.str() + "' is not a number from 0 up");
  return *value;
}

ir::Decision decisionOf(const json::Value& value, const std::string& name) {
  const auto word = value.getAsString();
  for (size_t decision = 0; word && decision < kWords.size(); ++decision) {
    if (*word == kWords[decision]) return static_cast<ir::Decision>(decision);
  }
  fail("value '" + name + "' is neither keep, recompute nor recompute each time");
}

json::Object decisionsObject(const SavedPlan& saved) {
  json::Object values;
  for (const auto& [name, decision] : saved.values) values[ir::utf8Text(name)] = kWords[decision];
  json::Array regenerated;
  for (const std::string& name : saved.regenerated) regenerated.push_back(ir::utf8Text(name));
  return json::Object{{"graph_hash", saved.graph_hash},
                      {"values", std::move(values)},
                      {"regenerated", std::move(regenerated)}};
}

}  // namespace

SavedPlan savedPlan(const PlanningInput& input, const ir::Plan& plan) {
  const ir::Profile& profile = input.profile;
  SavedPlan saved;
  saved.graph_hash = profile.graph_hash;
  saved.inputs = profile.inputs;
  saved.loss = profile.loss;
  saved.device = profile.device;
  saved.times = timesText(profile);
  saved.budget = plan.budget;
  saved.predicted_peak = plan.predicted_peak;
  saved.recompute_share = plan.recompute_share;
  saved.lower_bound_share = plan.lower_bound_share;
  saved.lower_bound_peak = plan.peak_bound;
  const std::vector<int32_t> roots = storageRoots(profile);
  for (const int32_t storage : Simulator(input).candidates()) {
    const int32_t root = roots[storage];
    if (root < 0 || root >= input.first_internal) continue;
    const auto decision = static_cast<ir::Decision>(plan.keep[storage]);
    const auto [known, is_new] = saved.values.try_emplace(profile.values[root].name, decision);
    // A list with one kept storage is kept.
    if (!is_new && known->second != ir::kKeep && decision != ir::kRecompute) {
      known->second = decision;
    }
  }
  for (const int32_t value : regeneratedValues(input, plan)) {
    saved.regenerated.push_back(profile.values[value].name);
  }
  return saved;
}

ir::Plan planOf(const SavedPlan& saved, const PlanningInput& input) {
  const ir::Profile& profile = input.profile;
  Simulator simulator(input);
  std::vector<char> keep = simulator.keepAll();
  const std::vector<int32_t> candidates = simulator.candidates();
  const std::set<int32_t> free(candidates.begin(), candidates.end());
  const std::vector<int32_t> roots = storageRoots(profile);
  const std::set<std::string> regenerated(saved.regenerated.begin(), saved.regenerated.end());
  for (size_t storage = 0; storage < roots.size(); ++storage) {
    if (roots[storage] < 0 || profile.storages[storage].role != ir::StorageRole::kValue) continue;
    const ir::ValueProfile& root = profile.values[roots[storage]];
    ir::Decision decision = ir::kKeep;
    std::string name = root.name;
    if (roots[storage] >= input.first_internal) {
      const int32_t result = resultBeside(input, roots[storage]);
      name = result < 0 ? "" : profile.values[result].name;
      if (regenerated.count(name) > 0) decision = ir::kRecompute;
    } else if (const auto found = saved.values.find(name); found != saved.values.end()) {
      decision = found->second;
    }
    const bool is_free = free.count(static_cast<int32_t>(storage)) > 0;
    if (decision != ir::kKeep && !is_free && profile.storages[storage].bytes > 0) {
      fail("it recomputes " + name +
           ", which may not be recomputed here; allow the operators that it was made with");
    }
    if (is_free) keep[storage] = static_cast<char>(decision);
  }
  std::set<std::string> names;
  for (const ir::ValueProfile& value : profile.values) names.insert(value.name);
  for (const auto& [name, decision] : saved.values) {
    if (names.count(name) == 0) fail("the model has no value " + name);
  }
  for (const std::string& name : regenerated) {
    if (names.count(name) == 0) fail("the model has no value " + name + ", to be regenerated");
  }
  ir::Plan plan = evaluatedPlan(simulator, keep, profile.forwardSeconds());
  plan.budget = saved.budget;
  return plan;
}

std::string planHash(const SavedPlan& saved) {
  // What is kept need not be named.
  SavedPlan recomputed;
  recomputed.graph_hash = saved.graph_hash;
  recomputed.regenerated = saved.regenerated;
  for (const auto& [name, decision] : saved.values) {
    if (decision != ir::kKeep) recomputed.values.emplace(name, decision);
  }
  return textHash(llvm::formatv("{0}", json::Value(decisionsObject(recomputed))).str());
}

std::string toJson(const SavedPlan& saved) {
  json::Object root = decisionsObject(saved);
  root["remat_plan"] = SavedPlan::kVersion;
  root["tool_version"] = ir::utf8Text(saved.tool_version);
  root["profile_hash"] = ir::utf8Text(saved.profile_hash);
  root["method"] = ir::utf8Text(saved.method);
  root["inputs"] = ir::utf8Text(saved.inputs);
  root["loss"] = ir::utf8Text(saved.loss);
  root["device"] = ir::utf8Text(saved.device);
  root["times"] = ir::utf8Text(saved.times);
  root["budget"] = saved.budget;
  root["predicted_peak"] = saved.predicted_peak;
  root["recompute_share"] = saved.recompute_share;
  root["lower_bound_share"] = saved.lower_bound_share;
  root["lower_bound_peak"] = saved.lower_bound_peak;
  return llvm::formatv("{0:2}\n", json::Value(std::move(root))).str();
}

SavedPlan savedPlanFromJson(const std::string& text) {
  if (ir::nestsDeeperThan(kMaxDepth, text)) fail("the text is nested too deep");
  auto parsed = json::parse(text);
  if (!parsed) fail("no JSON: " + llvm::toString(parsed.takeError()));
  const json::Object* object = parsed->getAsObject();
  if (object == nullptr) fail("the file is not an object");
  if (const int64_t version = bytesAt(*object, "remat_plan"); version != SavedPlan::kVersion) {
    fail("format version " + std::to_string(version) + "; this program reads version " +
         std::to_string(SavedPlan::kVersion));
  }
  SavedPlan saved;
  saved.tool_version = stringAt(*object, "tool_version");
  saved.graph_hash = stringAt(*object, "graph_hash");
  saved.profile_hash = stringAt(*object, "profile_hash");
  saved.method = stringAt(*object, "method");
  saved.inputs = stringAt(*object, "inputs");
  saved.loss = stringAt(*object, "loss");
  saved.device = stringAt(*object, "device");
  // Plans of earlier builds lack it.
  if (object->get("times") != nullptr) saved.times = stringAt(*object, "times");
  saved.budget = bytesAt(*object, "budget");
  saved.predicted_peak = bytesAt(*object, "predicted_peak");
  saved.recompute_share = shareAt(*object, "recompute_share");
  saved.lower_bound_share = shareAt(*object, "lower_bound_share");
  saved.lower_bound_peak = bytesAt(*object, "lower_bound_peak");
  const json::Object* values = at(*object, "values").getAsObject();
  if (values == nullptr) fail("'values' is not an object");
  for (const auto& [name, value] : *values) {
    saved.values.emplace(name.str(), decisionOf(value, name.str()));
  }
  const json::Array* regenerated = at(*object, "regenerated").getAsArray();
  if (regenerated == nullptr) fail("'regenerated' is not a list");
  for (const json::Value& value : *regenerated) {
    const auto name = value.getAsString();
    if (!name) fail("'regenerated' holds something that is not a name");
    if (llvm::is_contained(saved.regenerated, name->str())) {
      fail("'regenerated' holds " + name->str() + " twice");
    }
    saved.regenerated.push_back(name->str());
  }
  return saved;
}

}  // namespace remat
