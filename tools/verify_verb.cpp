#include <ATen/ATen.h>

#include <cstdio>
#include <memory>

#include "ir/remark.h"
#include "passes/value_tensors.h"
#include "tools/common_options.h"
#include "tools/comparing_options.h"
#include "tools/errors.h"
#include "tools/planning_session.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/stdout_to_stderr.h"
#include "tools/verbs.h"
#include "tools/verification.h"

namespace remat::tools {
namespace {

namespace json = llvm::json;

struct VerifyArguments {
  RunOptions run;
  std::string optimized;
  ComparingOptions comparing;
  int rounds = 5;
  bool json = false;
};

/// Both files must hold the same parameters and buffers: otherwise a difference would say nothing
/// of the rewrite.
void checkSameModel(const ModelFile& original, const ModelFile& optimized) {
  const auto compare = [&](const auto& left, const auto& right, const char* what) {
    auto a = left.begin();
    auto b = right.begin();
    for (; a != left.end() && b != right.end(); ++a, ++b) {
      const at::Tensor& first = (*a).value;
      const at::Tensor& second = (*b).value;
      const bool same = (*a).name == (*b).name && first.sizes() == second.sizes() &&
                        first.scalar_type() == second.scalar_type();
      if (same) continue;
      throw refused(optimized.path + ": is no version of " + original.path + ": " + what + " " +
                    (*a).name +
                    " differs in name, shape or dtype; give the file that was made from it");
    }
    if (a != left.end() || b != right.end()) {
      throw refused(optimized.path + ": is no version of " + original.path +
                    ": it has another number of " + what +
                    "s; give the file that was made from it");
    }
  };
  compare(original.module.named_parameters(), optimized.module.named_parameters(), "parameter");
  compare(original.module.named_buffers(), optimized.module.named_buffers(), "buffer");
  if (original.module.is_training() != optimized.module.is_training()) {
    throw refused(optimized.path +
                  ": one of the files is in training mode and the other in evaluation mode; "
                  "save both in the same");
  }
}

bool sameParameterValues(const ModelFile& original, const ModelFile& optimized) {
  const auto left = original.module.parameters();
  const auto right = optimized.module.parameters();
  auto b = right.begin();
  for (const at::Tensor& parameter : left) {
    if (!at::equal(parameter.detach(), (*b).detach())) return false;
    ++b;
  }
  return true;
}

json::Value toJson(const Verification& result, const ModelFile& optimized, int steps) {
  json::Value predicted = nullptr;
  if (optimized.annotations) predicted = optimized.annotations->predicted_peak;
  const Verdict& verdict = result.verdict;
  const Parity& parity = verdict.parity;
  json::Value first = nullptr;
  if (!verdict.first_difference.empty()) first = verdict.first_difference;
  return json::Object{{"parity", json::Object{{"outputs", matchName(parity.outputs)},
                                              {"gradients", matchName(parity.gradients)},
                                              {"buffers", matchName(parity.buffers)},
                                              {"random_state", matchName(parity.random_state)},
                                              {"max_difference", parity.max_difference},
                                              {"steps", steps},
                                              {"deterministic", verdict.deterministic},
                                              {"first_difference", std::move(first)}}},
                      {"peak_bytes", json::Object{{"original", result.original_peak},
                                                  {"optimized", result.optimized_peak},
                                                  {"predicted", std::move(predicted)}}},
                      {"step_seconds", json::Object{{"original", result.original_seconds},
                                                    {"optimized", result.optimized_seconds}}},
                      {"recompute_share_of_forward", result.recompute_share}};
}

void printParity(const char* name, const Parity& parity) {
  std::printf("%s: outputs %s, gradients %s, buffers %s, random state %s", name,
              matchName(parity.outputs), matchName(parity.gradients), matchName(parity.buffers),
              matchName(parity.random_state));
  if (parity.worst() != Match::kBitwise)
    std::printf("; largest difference %.1e", parity.max_difference);
  std::printf("\n");
}

void printResult(const Verification& result, const ModelFile& optimized, int steps) {
  const auto original = static_cast<double>(result.original_peak);
  const std::string compared =
      "parity, " + std::to_string(steps) + (steps == 1 ? " step" : " steps");
  printParity(compared.c_str(), result.verdict.parity);
  if (!result.original_error.empty()) {
    std::printf("with TorchScript's own optimisation on, the original can't be trained: %s\n",
                result.original_error.c_str());
  } else if (result.optimized_parity.worst() != Match::kBitwise) {
    printParity("with TorchScript's own optimisation on, which rounds differently",
                result.optimized_parity);
  }
  std::printf("%-14s%14s%14s%10s\n", "", "original", "optimised", "");
  std::printf("%-14s%14s%14s%10s\n", "step peak", ir::formatBytes(result.original_peak).c_str(),
              ir::formatBytes(result.optimized_peak).c_str(),
              percent(static_cast<double>(result.optimized_peak) / original).c_str());
  if (optimized.annotations) {
    const int64_t predicted = optimized.annotations->predicted_peak;
    std::printf("%-14s%14s%14s%10s\n", "  predicted", "", ir::formatBytes(predicted).c_str(),
                percent(static_cast<double>(predicted) / original).c_str());
  }
  std::printf("%-14s%12.4f s%12.4f s%10s\n", "step time", result.original_seconds,
              result.optimized_seconds,
              percent(result.optimized_seconds / result.original_seconds).c_str());
  std::printf("%-14s%14s%14s  of one forward\n", "recomputed", "",
              percent(result.recompute_share).c_str());
}

/// How the step that is measured differs from the one that the file was planned for, in words;
/// empty where it doesn't.
std::string otherStep(const ir::Annotations& annotations, const Session& session,
                      const std::string& method) {
  std::string text;
  const auto compare = [&](const char* what, const std::string& planned, const std::string& here) {
    if (planned == here) return;
    text += (text.empty() ? "" : ", ") + std::string(what) + " " + planned + " and not " + here;
  };
  compare("method", annotations.method, method);
  compare("inputs", annotations.inputs, describeInputs(session.inputs));
  compare("loss", annotations.loss, lossName(session.step));
  compare("device", annotations.device, session.step.device);
  return text;
}

/// The file's own budget binds where what was measured is the step that it was planned for.
void checkBudget(const ModelFile& optimized, const std::string& other_step,
                 const Verification& result) {
  if (!optimized.annotations || optimized.annotations->budget <= 0 || !other_step.empty()) return;
  const ir::Annotations& annotations = *optimized.annotations;
  if (result.optimized_peak <= annotations.budget) return;
  throw ToolError(kOverBudget, optimized.path + ": the measured peak of " +
                                   ir::formatBytes(result.optimized_peak) +
                                   " is above its budget of " +
                                   ir::formatBytes(annotations.budget) + " (planned for " +
                                   annotations.inputs + "); optimise it for these inputs");
}

Side sideOf(const ModelFile& file, const Session& session, const std::string& method) {
  return {file.module, loadModel(file.path, c10::Device(session.step.device)).module, method};
}

int verifyModels(const VerifyArguments& arguments) {
  const Comparing comparing = comparingOptions(arguments.comparing);
  StdoutToStderr model_output;
  Progress progress;
  progress.show("loading " + arguments.run.model);
  const Session session = openSession(arguments.run);
  const ModelFile optimized = loadModel(arguments.optimized, c10::Device(session.step.device));
  methodOf(optimized, arguments.run.method);
  checkSameModel(session.file, optimized);
  progress.clear();
  const bool same_values = sameParameterValues(session.file, optimized);
  if (!same_values) {
    std::fprintf(stderr, "note: the files hold different parameter values, so results differ\n");
  }
  const std::string& method = arguments.run.method;
  const std::string other_step =
      optimized.annotations ? otherStep(*optimized.annotations, session, method) : "";
  if (!other_step.empty()) {
    std::fprintf(stderr, "note: %s was planned for %s: its budget and prediction hold for that\n",
                 optimized.path.c_str(), other_step.c_str());
  }
  const Verification result = naming(arguments.optimized, [&] {
    return verifySides(sideOf(session.file, session, method), sideOf(optimized, session, method),
                       session.inputs, session.step, comparing, arguments.rounds,
                       [&](const std::string& text) { progress.show(text); });
  });
  progress.clear();
  model_output.restore();
  if (arguments.json) {
    std::printf("%s", jsonText(toJson(result, optimized, comparing.steps)).c_str());
  } else {
    printResult(result, optimized, comparing.steps);
  }
  std::fflush(stdout);
  noteDeterminism(result.verdict);
  if (!result.verdict.same) {
    throw ToolError(
        kDifference,
        optimized.path + ": differs from " + session.file.path +
            differenceText(result.verdict, same_values
                                               ? "; don't train with it, and report this"
                                               : ": the files hold different parameter values"));
  }
  checkBudget(optimized, other_step, result);
  return kDone;
}

}  // namespace

void addVerifyVerb(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* verb = app.add_subcommand(
      "verify",
      "Trains both models for some steps: are results equal, and what do peak and time come to?");
  verb->add_option("MODEL", arguments->run.model, "The original model")->required();
  verb->add_option("OUT", arguments->optimized, "The optimised model")->required();
  addRunOptions(*verb, arguments->run);
  addComparingOptions(*verb, arguments->comparing);
  verb->add_option("--rounds", arguments->rounds,
                   "Interleaved steps of both that are timed; the best counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  verb->add_flag("--json", arguments->json, "Print the result as JSON");
  verb->footer("Example:\n  remat-opt verify resnet50.pt small.pt --input 16x3x224x224");
  verb->callback(
      [arguments, &action] { action = [arguments] { return verifyModels(*arguments); }; });
}

}  // namespace remat::tools
