#include "tests/fuzz/loader_targets.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <sstream>
#include <stdexcept>

#include "ir/dump.h"
#include "ir/outline.h"
#include "ir/profile.h"
#include "passes/plan_file.h"
#include "passes/remat.h"
#include "tools/errors.h"
#include "tools/model_file.h"
#include "tools/saved_inputs.h"

namespace remat::fuzz {
namespace {

using torch::jit::Module;

Module sampleModule() {
  at::manual_seed(1);
  Module norm("Norm");
  norm.register_parameter("weight", at::ones({32}).set_requires_grad(true), /*is_buffer=*/false);
  norm.register_buffer("mean", at::zeros({32}));
  norm.register_buffer("var", at::ones({32}));
  norm.define(R"(
def forward(self, x: Tensor) -> Tensor:
    return torch.batch_norm(x, self.weight, None, self.mean, self.var, True, 0.1, 1e-5, False)
)");
  Module module("Sample");
  for (const char* name : {"v", "w"}) {
    module.register_parameter(name, at::randn({32, 32}).div_(6).set_requires_grad(true), false);
  }
  module.register_module("norm", norm);
  module.define(R"(
def forward(self, x: Tensor, scale: float) -> Tensor:
    x = torch.dropout(torch.gelu(torch.matmul(x, self.v)), 0.2, True)
    x = self.norm.forward(torch.tanh(torch.matmul(x, self.w)))
    if scale > 1.0:
        x = torch.relu(x) * scale
    return torch.sigmoid(x)
)");
  return module;
}

std::vector<c10::IValue> sampleInputs() {
  at::manual_seed(2);
  return {at::randn({16, 32}).set_requires_grad(true), 2.0};
}

std::string saved(const Module& module, const torch::jit::ExtraFilesMap& extra) {
  std::ostringstream stream;
  module.save(stream, extra);
  return stream.str();
}

/// Whether `text` sounds as if a size were believed without a check, or an index.
std::string defectIn(const std::string& text) {
  for (const char* sign : {"bad_alloc", "out of memory", "length_error", "_M_", "basic_string",
                           "vector::", "max_size", "map::at"}) {
    if (text.find(sign) != std::string::npos) return "says " + text;
  }
  if (text.find("INTERNAL ASSERT") == std::string::npos) return {};
  for (const char* ours : {"ir/", "passes/", "runtime/", "tools/"}) {
    if (text.find(std::string(" at \"") + ours) != std::string::npos) return "asserts " + text;
  }
  return {};
}

/// What `read` does, which may throw `Documented` with one line and nothing else.
template <typename Documented>
Outcome judged(const std::function<void()>& read) {
  Outcome outcome;
  try {
    read();
    outcome.accepted = true;
  } catch (const Documented& error) {
    outcome.refusal = error.what();
    outcome.defect = defectIn(outcome.refusal);
    if (outcome.refusal.find('\n') != std::string::npos) outcome.defect = "says two lines";
    if (outcome.refusal.empty()) outcome.defect = "says nothing";
  } catch (const std::exception& error) {
    outcome.refusal = error.what();
    outcome.defect = std::string("throws another type of exception: ") + error.what();
  }
  return outcome;
}

/// What `use` makes of something that was accepted: any exception will do, if it is no defect.
void used(Outcome& outcome, const char* what, const std::function<void()>& use) {
  if (!outcome.accepted || !outcome.defect.empty()) return;
  try {
    use();
  } catch (const std::exception& error) {
    // LibTorch reads a file's debug information when it is first asked for it, and then makes as
    // much room as it says.
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return;
    const std::string defect = defectIn(tools::oneLine(error));
    if (!defect.empty()) outcome.defect = std::string(what) + " " + defect;
  }
}

std::string writtenTo(const std::string& folder, const std::string& text) {
  std::string path = folder + "/damaged.pt";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  return path;
}

void dump(const Module& module, const std::optional<ir::Annotations>& annotations) {
  if (!ir::isOptimized(module, "forward")) {
    ir::dumpGraph(*module.get_method("forward").graph());
    return;
  }
  ir::dumpGraph(*ir::originalGraph(module, "forward"));
  const auto region = ir::regionGraph(module, "forward");
  ir::dumpGraph(*region, annotations ? &*annotations : nullptr);
}

void train(Module& module) {
  at::manual_seed(3);
  const c10::IValue output = module.forward(sampleInputs());
  if (!output.isTensor() || !output.toTensor().requires_grad()) return;
  output.toTensor().sum().backward();
}

Outcome readModel(const std::string& text, const Samples& /*samples*/, const std::string& folder) {
  const std::string path = writtenTo(folder, text);
  tools::ModelFile file;
  Outcome outcome =
      judged<tools::ToolError>([&] { file = tools::loadModel(path, c10::Device(c10::kCPU)); });
  used(outcome, "dump", [&] { dump(file.module, file.annotations); });
  used(outcome, "training", [&] { train(file.module); });
  used(outcome, "strip", [&] {
    for (const std::string& method : ir::optimizedMethods(file.module)) {
      ir::strip(file.module, method);
    }
    saved(file.module, {});
  });
  return outcome;
}

Outcome readInputs(const std::string& text, const Samples& /*samples*/, const std::string& folder) {
  const std::string path = writtenTo(folder, text);
  std::vector<c10::IValue> inputs;
  Outcome outcome =
      judged<tools::ToolError>([&] { inputs = tools::loadInputs(path, c10::Device(c10::kCPU)); });
  used(outcome, "the model", [&] { sampleModule().forward(inputs); });
  return outcome;
}

/// The pipeline, with what was read in place of what it would have made itself.
OptimizeResult optimizeWith(const std::string& profile, const std::string& plan) {
  OptimizeOptions options;
  options.budget.kind = Budget::Kind::kMinimum;
  options.measure = false;
  options.profile_json = profile;
  options.plan_json = plan;
  return optimize(sampleModule(), sampleInputs(), options);
}

/// Of the sample, with times that are the same in each process.
ir::Profile sampleProfile() {
  ir::Profile profile = analyze(sampleModule(), sampleInputs(), OptimizeOptions()).profile;
  double seconds = 1e-5;
  profile.step_seconds = 1e-2;
  for (ir::NodeProfile& node : profile.nodes) node.seconds = seconds += 1e-6;
  for (ir::BackwardStep& step : profile.backward) step.seconds = seconds += 1e-6;
  return profile;
}

Outcome readProfile(const std::string& text, const Samples& /*samples*/,
                    const std::string& /*folder*/) {
  Outcome outcome = judged<std::runtime_error>([&] { ir::profileFromJson(text); });
  used(outcome, "planning", [&] { optimizeWith(text, ""); });
  return outcome;
}

Outcome readPlan(const std::string& text, const Samples& samples, const std::string& /*folder*/) {
  Outcome outcome = judged<std::runtime_error>([&] { savedPlanFromJson(text); });
  used(outcome, "rewriting", [&] { optimizeWith(samples.profile, text); });
  return outcome;
}

}  // namespace

Samples makeSamples() {
  Samples samples;
  samples.profile = ir::toJson(sampleProfile());
  const OptimizeResult result = optimizeWith(samples.profile, "");
  if (!result.changed) throw std::runtime_error("the sample was not optimised");
  samples.plan = toJson(result.saved_plan);
  samples.plain = saved(sampleModule(), {{"notes.txt", "a note"}});
  samples.optimized =
      saved(result.module, {{"remat.json", ir::toJson(result.annotations)}, {"notes.txt", "a"}});
  const std::vector<char> pickled =
      torch::jit::pickle_save(c10::ivalue::Tuple::create(sampleInputs()));
  samples.inputs.assign(pickled.begin(), pickled.end());
  return samples;
}

const std::vector<Target>& targets() {
  static const std::vector<Target> all{
      {"plain model", [](const Samples& s, Mutator& m) { return m.bytes(s.plain); }, readModel},
      {"optimised model", [](const Samples& s, Mutator& m) { return m.bytes(s.optimized); },
       readModel},
      {"record of a plain model",
       [](const Samples& s, Mutator& m) { return m.record(recordsOf(s.plain)); }, readModel},
      {"record of an optimised model",
       [](const Samples& s, Mutator& m) { return m.record(recordsOf(s.optimized)); }, readModel},
      {"inputs", [](const Samples& s, Mutator& m) { return m.bytes(s.inputs); }, readInputs},
      {"record of inputs",
       [](const Samples& s, Mutator& m) { return m.record(recordsOf(s.inputs)); }, readInputs},
      {"profile", [](const Samples& s, Mutator& m) { return m.json(s.profile); }, readProfile},
      {"plan", [](const Samples& s, Mutator& m) { return m.json(s.plan); }, readPlan},
  };
  return all;
}

}  // namespace remat::fuzz
