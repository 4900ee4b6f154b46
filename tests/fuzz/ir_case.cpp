#include "tests/fuzz/ir_case.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <cctype>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

#include "tests/fuzz/attributes.h"

namespace remat::fuzz {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;

/// The parser knows no classes: attributes get their types back from the module.
void retype(Block& block, const torch::jit::Module& module) {
  for (Node* node : block.nodes()) {
    if (node->kind() == c10::prim::GetAttr) {
      node->output()->setType(module.type()->getAttribute(node->s(c10::attr::name)));
    }
    for (Block* inner : node->blocks()) retype(*inner, module);
  }
}

/// What stands behind `# KEY:`; empty where there is no such line.
std::string setting(const std::string& text, const std::string& key) {
  std::smatch match;
  const std::regex line("# " + key + ": *(.*)");
  return std::regex_search(text, match, line) ? match[1].str() : "";
}

}  // namespace

std::string toIr(const Trial& trial) {
  std::ostringstream out;
  out << "# seed: " << trial.seed << "\n";
  out << "# budget: "
      << (trial.budget.kind == Budget::Kind::kMinimum ? "min"
                                                      : std::to_string(trial.budget.fraction))
      << "\n";
  out << "# variant: " << variantName(trial.variant) << "\n";
  out << "# input-grad: " << (trial.input_grad ? 1 : 0) << "\n";
  out << "# saved: " << (trial.saved ? 1 : 0) << "\n";
  out << "# optimized-execution: " << (trial.optimized_execution ? 1 : 0) << "\n";
  const auto graph = trial.module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  const std::string text =
      std::regex_replace(graph->toString(false), std::regex("__torch__[\\w.]*"), "Any");
  // The parser takes a node without results only without its equals sign.
  out << std::regex_replace(text, std::regex("(\n *) = "), "$1");
  return out.str();
}

Trial trialFromIr(const std::string& text) {
  Trial trial;
  trial.seed = std::stoull(setting(text, "seed"));
  const std::string budget = setting(text, "budget");
  if (budget == "min") {
    trial.budget.kind = Budget::Kind::kMinimum;
  } else {
    trial.budget.fraction = std::stod(budget);
  }
  trial.variant = variantNamed(setting(text, "variant"));
  trial.input_grad = setting(text, "input-grad") == "1";
  trial.saved = setting(text, "saved") == "1";
  trial.optimized_execution = setting(text, "optimized-execution") == "1";

  auto graph = std::make_shared<Graph>();
  std::unordered_map<std::string, torch::jit::Value*> values;
  torch::jit::parseIR(text, graph.get(), values);
  for (auto& [name, value] : values) {
    if (std::isalpha(static_cast<unsigned char>(name[0])) != 0) value->setDebugName(name);
  }
  trial.module = moduleFor(text, trial.seed);
  graph->inputs().at(0)->setType(trial.module.type());
  graph->inputs().at(0)->setDebugName("self");
  retype(*graph->block(), trial.module);
  const auto unit = trial.module._ivalue()->compilation_unit();
  const c10::QualifiedName name(*trial.module.type()->name(), "forward");
  trial.module.type()->addMethod(unit->create_function(name, graph));
  return trial;
}

}  // namespace remat::fuzz
