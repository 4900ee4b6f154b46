// planner_case GRAPH PERCENT...: a synthetic step for a reference that is no C++, and what the
// planner makes of it. GRAPH is a name and its numbers: convChain:20, uniformChain:60,
// bottleneckNet:1,2, transformer:2, randomProfile:SEED,OPS. Prints one line of JSON: the
// simulator's model, and for a budget of each PERCENT of the step's peak the planner's plan without
// second recomputations. Then it answers each line of input, a plan of one character per candidate
// (1: keep, 0: recompute), with the simulator's `PEAK SECONDS`, and `trace PLAN` with the most
// bytes of each instant (Timeline). Bytes and seconds all over.

#include <llvm/ADT/StringRef.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/raw_ostream.h>

#include <exception>
#include <iomanip>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "passes/planner.h"
#include "passes/simulator.h"
#include "tests/passes/synthetic.h"

namespace remat {
namespace {

namespace json = llvm::json;

PlanningInput makeInput(const std::string& graph) {
  const size_t colon = graph.find(':');
  const std::string name = graph.substr(0, colon);
  std::vector<int> numbers;
  std::istringstream rest(colon == std::string::npos ? "" : graph.substr(colon + 1));
  for (std::string number; std::getline(rest, number, ',');) numbers.push_back(std::stoi(number));
  if (name == "bottleneckNet" && !numbers.empty()) return testing::bottleneckNet(numbers);
  if (name == "randomProfile" && numbers.size() == 2) {
    std::mt19937_64 random(numbers[0]);
    return testing::randomProfile(random, numbers[1]);
  }
  if (numbers.size() == 1) {
    if (name == "convChain") return testing::convChain(numbers[0], 1 << 20);
    if (name == "uniformChain") return testing::uniformChain(numbers[0], 1000, 1);
    if (name == "transformer") return testing::transformer(numbers[0], 256);
  }
  throw std::invalid_argument("no such graph: " + graph);
}

json::Object toJson(const SimulationModel::Bulk& bulk) {
  return json::Object{{"peak", bulk.peak}, {"delta", bulk.delta}};
}

json::Array toJson(llvm::ArrayRef<int32_t> ids) { return json::Array(ids); }

const char* nameOf(SimulationModel::OpKind kind) {
  switch (kind) {
    case SimulationModel::OpKind::kNone:
      return "none";
    case SimulationModel::OpKind::kUnpack:
      return "unpack";
    case SimulationModel::OpKind::kApplyEnd:
      return "apply_end";
    case SimulationModel::OpKind::kRelease:
      return "release";
  }
  return "";
}

json::Object toJson(const SimulationModel& model) {
  json::Array nodes;
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    const SimulationModel::Node& node = model.nodes[i];
    const auto id = static_cast<int32_t>(i);
    nodes.push_back(json::Object{{"forward", toJson(node.forward)},
                                 {"replay_peak", node.replay_peak},
                                 {"seconds", node.seconds},
                                 {"inputs", toJson(model.node_inputs[id])},
                                 {"outputs", toJson(model.node_outputs[id])},
                                 {"allocs", toJson(model.node_allocs[id])}});
  }
  json::Array values;
  for (size_t i = 0; i < model.values.size(); ++i) {
    const SimulationModel::Value& value = model.values[i];
    const auto id = static_cast<int32_t>(i);
    values.push_back(json::Object{{"producer", value.producer},
                                  {"at_hand", value.at_hand},
                                  {"storages", toJson(model.value_storages[id])},
                                  {"roots", toJson(model.value_roots[id])}});
  }
  json::Array storages;
  for (const SimulationModel::Storage& storage : model.storages) {
    storages.push_back(json::Object{{"bytes", storage.bytes},
                                    {"root", storage.root},
                                    {"dies_after", storage.dies_after},
                                    {"escapes", storage.escapes}});
  }
  json::Array slots;
  for (const SimulationModel::Slot& slot : model.slots) {
    slots.push_back(json::Object{{"value", slot.value}, {"storage", slot.storage}});
  }
  json::Array backward;
  for (const SimulationModel::BackwardOp& op : model.backward) {
    backward.push_back(
        json::Object{{"before", toJson(op.before)}, {"kind", nameOf(op.kind)}, {"slot", op.slot}});
  }
  return json::Object{{"nodes", std::move(nodes)},       {"values", std::move(values)},
                      {"storages", std::move(storages)}, {"slots", std::move(slots)},
                      {"backward", std::move(backward)}, {"candidates", toJson(model.candidates)}};
}

void printCase(const PlanningInput& input, Simulator& simulator, const std::vector<int>& percents) {
  PlannerOptions options;
  options.exhaustive_decisions = 0;
  options.second_recomputation = false;
  json::Array plans;
  for (const int percent : percents) {
    const ir::Plan found = plan(input, input.profile.peak_bytes * percent / 100, options);
    std::string keep;
    for (int32_t storage : simulator.candidates()) keep += found.keep[storage] != 0 ? '1' : '0';
    plans.push_back(json::Object{{"percent", percent},
                                 {"budget", found.budget},
                                 {"peak", found.predicted_peak},
                                 {"seconds", found.recompute_seconds},
                                 {"bound_seconds", found.lower_bound_seconds},
                                 {"keep", keep}});
  }
  llvm::outs() << json::Value(json::Object{{"model", toJson(simulator.model())},
                                           {"peak", input.profile.peak_bytes},
                                           {"forward_seconds", input.profile.forwardSeconds()},
                                           {"plans", std::move(plans)}})
               << '\n';
  llvm::outs().flush();
}

std::vector<char> parsePlan(Simulator& simulator, llvm::StringRef text) {
  const std::vector<int32_t> candidates = simulator.candidates();
  if (text.size() != candidates.size()) {
    throw std::invalid_argument("a plan has " + std::to_string(candidates.size()) +
                                " decisions: " + text.str());
  }
  std::vector<char> keep = simulator.keepAll();
  for (size_t i = 0; i < candidates.size(); ++i) keep[candidates[i]] = text[i] == '1';
  return keep;
}

void answerPlans(Simulator& simulator) {
  for (std::string line; std::getline(std::cin, line);) {
    llvm::StringRef text = line;
    if (text.consume_front("trace ")) {
      for (int64_t bytes : simulator.trace(parsePlan(simulator, text)).peak_at) {
        std::cout << bytes << ' ';
      }
    } else {
      const Evaluation evaluation = simulator.evaluate(parsePlan(simulator, text));
      std::cout << evaluation.peak << ' ' << std::setprecision(17) << evaluation.recompute_seconds;
    }
    std::cout << std::endl;
  }
}

}  // namespace
}  // namespace remat

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::invalid_argument("usage: planner_case GRAPH PERCENT...");
    const remat::PlanningInput input = remat::makeInput(argv[1]);
    std::vector<int> percents;
    for (int i = 2; i < argc; ++i) percents.push_back(std::stoi(argv[i]));
    remat::Simulator simulator(input);
    remat::printCase(input, simulator, percents);
    remat::answerPlans(simulator);
  } catch (const std::exception& error) {
    std::cerr << "planner_case: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
