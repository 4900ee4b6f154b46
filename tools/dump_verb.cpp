#include <cstdio>
#include <memory>

#include "ir/dump.h"
#include "ir/outline.h"
#include "tools/errors.h"
#include "tools/model_file.h"
#include "tools/verbs.h"

namespace remat::tools {
namespace {

struct DumpArguments {
  std::string file;
  std::string method = "forward";
  std::vector<std::string> libraries;
  bool before = false;
};

/// `# remat-opt 1.0, plan 0123456789abcdef, profile fedcba9876543210, for cuda:0`.
std::string origin(const ir::Annotations& annotations) {
  std::string text = "# remat-opt " + annotations.tool_version;
  if (!annotations.plan_hash.empty()) text += ", plan " + annotations.plan_hash;
  if (!annotations.profile_hash.empty()) text += ", profile " + annotations.profile_hash;
  if (!annotations.device.empty()) text += ", for " + annotations.device;
  return text + "\n";
}

std::string dumpText(const ModelFile& file, const DumpArguments& arguments) {
  const torch::jit::Method method = methodOf(file, arguments.method);
  if (!ir::isOptimized(file.module, arguments.method)) return ir::dumpGraph(*method.graph());
  if (arguments.before) return ir::dumpGraph(*ir::originalGraph(file.module, arguments.method));
  const bool annotated = file.annotations && file.annotations->method == arguments.method;
  const auto region = ir::regionGraph(file.module, arguments.method);
  if (!annotated) return ir::dumpGraph(*region);
  return origin(*file.annotations) + ir::dumpGraph(*region, &*file.annotations);
}

int dumpFile(const DumpArguments& arguments) {
  loadLibraries(arguments.libraries);
  const ModelFile file = loadModel(arguments.file, c10::Device(c10::kCPU));
  const std::string text = dumpText(file, arguments);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kDone;
}

}  // namespace

void addDumpVerb(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DumpArguments>();
  CLI::App* verb = app.add_subcommand(
      "dump", "Prints a model's graph; of an optimised one what is kept and recomputed, and why");
  verb->add_option("FILE", arguments->file, "A saved model")->required();
  verb->add_flag("--before", arguments->before,
                 "Of an optimised file: the graph before the rewrite");
  verb->add_option("--method", arguments->method, "The method to print")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--library", arguments->libraries,
                   "A shared library that registers custom operators")
      ->type_name("FILE.so")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->footer("Example:\n  remat-opt dump small.pt");
  verb->callback([arguments, &action] { action = [arguments] { return dumpFile(*arguments); }; });
}

}  // namespace remat::tools
