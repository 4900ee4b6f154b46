#include "tools/common_options.h"

#include <torch/csrc/jit/runtime/graph_executor.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "ir/profile.h"
#include "passes/module_state.h"
#include "passes/plan_file.h"
#include "passes/value_tensors.h"
#include "tools/budget.h"
#include "tools/device_options.h"
#include "tools/errors.h"
#include "tools/saved_inputs.h"

namespace remat::tools {
namespace {

/// Runs a parser of one option's text; what it rejects becomes a usage error that names the option.
template <typename Parse>
auto parseOption(const char* option, const Parse& parse) {
  try {
    return parse();
  } catch (const std::invalid_argument& error) {
    throw usage(std::string(option) + " " + error.what());
  }
}

std::string readText(const std::string& path, const char* kind, const char* writer) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    const std::string cause = std::generic_category().message(errno);
    throw refused(path + ": can't be read (" + cause + "); give a " + kind + " written by " +
                  writer);
  }
  return text.str();
}

std::string readProfile(const std::string& path) {
  std::string text = readText(path, "profile", "--save-profile");
  try {
    ir::profileFromJson(text);
  } catch (const std::runtime_error& error) {
    throw refused(path + ": is no profile written by --save-profile: " + error.what() +
                  "; record one with it");
  }
  return text;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string result;
  for (const std::string& text : texts) result += (result.empty() ? "" : " ") + text;
  return result;
}

/// `2 inputs (x: Tensor, scale: float = 1.0)`.
std::string describeArguments(const c10::FunctionSchema& schema) {
  std::string text;
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    text += (i > 1 ? ", " : "") + argument.name() + ": " + argument.type()->annotation_str();
    if (argument.default_value()) text += " = …";
  }
  const size_t count = schema.arguments().size() - 1;
  return std::to_string(count) + (count == 1 ? " input" : " inputs") +
         (count == 0 ? "" : " (" + text + ")");
}

void checkArgumentCount(const Session& session, const torch::jit::Method& method) {
  const c10::FunctionSchema& schema = method.function().getSchema();
  size_t required = 0;
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    if (!schema.arguments()[i].default_value()) ++required;
  }
  const size_t given = session.inputs.size();
  if (given >= required && given < schema.arguments().size()) return;
  throw refused(session.file.path + ": " + method.name() + " takes " + describeArguments(schema) +
                ", " + std::to_string(given) + " given" +
                (given == 0 ? "" : " (" + session.input_text + ")") +
                "; give one --input per argument, in order");
}

/// A forward without gradients whose effects are undone.
void tryForward(Session& session, const torch::jit::Method& method) {
  ModuleState state(session.file.module);
  const RandomStateScope random_state(c10::Device(session.step.device));
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  const at::NoGradGuard no_grad;
  try {
    const std::vector<at::Tensor> outputs = tensorsOf(method(cloneValues(session.inputs)));
    session.scalar_output = outputs.size() == 1 && outputs.front().dim() == 0;
  } catch (const std::exception& error) {
    state.restore();
    throw refused(session.file.path + ": " + method.name() + " fails with " + session.input_text +
                  ": " + oneLine(error) + "; give inputs that fit the model");
  }
  state.restore();
}

std::vector<c10::IValue> sessionInputs(const RunOptions& options, c10::Device device) {
  if (!options.inputs_file.empty()) return loadInputs(options.inputs_file, device);
  std::vector<InputSpec> specs;
  for (const std::string& text : options.input_specs) {
    specs.push_back(parseOption("--input", [&] { return parseInputSpec(text); }));
  }
  constexpr uint64_t kSeed = 0;
  try {
    return makeInputs(specs, kSeed, device);
  } catch (const std::exception& error) {
    throw refused("--input " + joined(options.input_specs) + ": " + oneLine(error));
  }
}

}  // namespace

void addRunOptions(CLI::App& verb, RunOptions& options) {
  auto* specs =
      verb.add_option("--input", options.input_specs,
                      "One argument of the model, in order; repeat it for more. "
                      "SHAPE[:DTYPE[:LOW..HIGH]][:grad], as 16x3x224x224, 8x16:bfloat16, "
                      "4x512:int64:0..8191, scalar; or int=3, float=0.5, bool=true, str=a, none")
          ->type_name("SPEC")
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option("--inputs", options.inputs_file,
                  "The arguments from a file: torch.save((x, y), FILE)")
      ->type_name("FILE")
      ->excludes(specs);
  verb.add_option("--method", options.method, "The method that is trained")
      ->type_name("NAME")
      ->capture_default_str();
  verb.add_option("--device", options.device,
                  "Where the step runs, and model, inputs and targets go: cpu, cuda or cuda:N")
      ->capture_default_str();
  verb.add_option(
          "--loss", options.loss,
          "cross_entropy puts that loss with random targets behind the model: of logits [N, C, …], "
          "or "
          "[N, T, C] where there are three dimensions. Without it the backward starts from random "
          "gradients of the outputs, and the memory of a loss comes on top")
      ->type_name("LOSS");
  verb.add_option(
          "--autocast", options.autocast,
          "The step's forward and loss run under autocast of this dtype, as a training loop "
          "with torch.autocast runs them: bfloat16 or float16")
      ->type_name("DTYPE");
  verb.add_flag("--deterministic", options.deterministic,
                "The step runs by deterministic algorithms, as torch.use_deterministic_algorithms "
                "has them: an operator without any is an error. CUDA's and cuDNN's own choice may "
                "give other bits from run to run");
  verb.add_option("--library", options.libraries,
                  "A shared library that registers custom operators")
      ->type_name("FILE.so")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void addPlanningOptions(CLI::App& verb, PlanningOptions& options) {
  verb.add_option("--reserve", options.reserve, "Set aside from the budget, as 200MB")
      ->type_name("BYTES");
  verb.add_option("--allow-op", options.allow_ops,
                  "An unknown operator that may be run again, as my::op")
      ->type_name("NAME")
      ->expected(1)
      ->allow_extra_args(false)  // [a] is a pattern, no list
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option(
          "--keep", options.keep,
          "What modules of this path make is kept whatever it costs, as layer1.* or *.attn: "
          "a module whose path matches, and all in it. Repeat it for more")
      ->type_name("GLOB")
      ->expected(1)
      ->allow_extra_args(false)  // [a] is a pattern, no list
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option(
          "--recompute", options.recompute,
          "What modules of this path make is always recomputed, as far as it may be. Repeat "
          "it for more")
      ->type_name("GLOB")
      ->expected(1)
      ->allow_extra_args(false)  // [a] is a pattern, no list
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  auto* batches =
      verb.add_option("--profile-batches", options.profile_batches,
                      "For a model too big to run once as it is: record at these two smaller batch "
                      "sizes and extrapolate; nothing is measured then. As 2,4")
          ->type_name("A,B")
          ->delimiter(',')
          ->expected(2);
  verb.add_option("--batch-dim", options.batch_dim, "The inputs' dimension that is the batch")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->needs(batches);
  verb.add_option("--profile", options.profile, "Reuse a profile instead of recording one")
      ->type_name("FILE")
      ->excludes(batches);
  verb.add_option("--plan-for", options.plan_for,
                  "Plan for this device, cuda or cuda:N, from a step on the CPU: bytes as its "
                  "allocator counts them, times by a roofline. Nothing is measured")
      ->type_name("DEVICE");
  verb.add_option("--roofline", options.roofline,
                  "For --plan-for: operations and bytes per second that the device does, as "
                  "67T,4.8T; without it they are measured on the device, if it is here")
      ->type_name("FLOPS,BYTES_PER_S");
  verb.add_option("--save-profile", options.save_profile, "Write the profile, for --profile")
      ->type_name("FILE");
  verb.add_option("--save-plan", options.save_plan,
                  "Write the plan for one budget, by the names of values, for optimize --plan")
      ->type_name("FILE");
}

Session openSession(const RunOptions& options) {
  Session session;
  const c10::Device device = deviceOption(options.device);
  session.step.device = device.str();
  session.step.deterministic = options.deterministic;
  if (options.deterministic) prepareDeterministicLibraries(device);
  if (options.loss == "cross_entropy") {
    session.step.loss = StepOptions::Loss::kCrossEntropy;
  } else if (!options.loss.empty()) {
    throw usage("--loss '" + options.loss + "' is unknown; say cross_entropy, or leave it out");
  }
  if (!options.autocast.empty() && options.autocast != "bfloat16" &&
      options.autocast != "float16") {
    throw usage("--autocast '" + options.autocast + "' is unknown; say bfloat16 or float16");
  }
  session.step.autocast = options.autocast;
  session.inputs = sessionInputs(options, device);
  session.input_text = options.inputs_file.empty() ? "--input " + joined(options.input_specs)
                                                   : "--inputs " + options.inputs_file;
  loadLibraries(options.libraries);
  session.file = loadModel(options.model, device);
  const torch::jit::Method method = methodOf(session.file, options.method);
  checkArgumentCount(session, method);
  const auto& declared = method.function().getSchema().arguments();
  for (size_t i = 0; i < session.inputs.size(); ++i) {
    session.inputs[i] = typedAs(session.inputs[i], declared[i + 1].type());
  }
  tryForward(session, method);
  return session;
}

OptimizeOptions optimizeOptions(const RunOptions& run, const PlanningOptions& planning) {
  OptimizeOptions options;
  options.method = run.method;
  for (const std::string& op : planning.allow_ops) {
    const size_t colons = op.find("::");
    if (colons == 0 || colons == std::string::npos || colons + 2 == op.size()) {
      throw usage("--allow-op '" + op + "' is no operator's name; say my::op");
    }
  }
  options.allow_ops = planning.allow_ops;
  options.keep_modules = planning.keep;
  options.recompute_modules = planning.recompute;
  if (!planning.reserve.empty()) {
    options.reserve_bytes = parseOption("--reserve", [&] { return parseBytes(planning.reserve); });
  }
  if (!planning.max_overhead.empty()) {
    options.max_overhead =
        parseOption("--max-overhead", [&] { return parsePercentage(planning.max_overhead); });
  }
  options.profile_batches = planning.profile_batches;
  options.batch_dim = planning.batch_dim;
  applyTarget(run, planning, options);
  if (!planning.profile.empty()) options.profile_json = readProfile(planning.profile);
  return options;
}

void applyPlanFile(const std::string& path, OptimizeOptions& options) {
  options.plan_json = readText(path, "plan", "--save-plan");
  try {
    const SavedPlan saved = savedPlanFromJson(options.plan_json);
    options.budget.kind = saved.budget > 0 ? Budget::Kind::kBytes : Budget::Kind::kMinimum;
    options.budget.bytes = saved.budget;
  } catch (const std::runtime_error& error) {
    throw refused(path + ": is no plan written by --save-plan: " + error.what() +
                  "; write one with it");
  }
}

MemorySize deviceMemoryOption(const PlanningOptions& planning) {
  if (planning.device_memory.empty()) {
    if (!planning.optimizer.empty()) throw usage("--optimizer needs --device-memory");
    return {};
  }
  const MemorySize size =
      parseOption("--device-memory", [&] { return parseMemorySize(planning.device_memory); });
  parseOption("--optimizer",
              [&] { return optimizerBytesPerElement(optimizerOption(planning), 4); });
  return size;
}

std::string optimizerOption(const PlanningOptions& planning) {
  return planning.optimizer.empty() ? "sgd" : planning.optimizer;
}

Budget budgetOption(const std::string& text) {
  return parseOption("--budget", [&] { return parseBudget(text); });
}

}  // namespace remat::tools
