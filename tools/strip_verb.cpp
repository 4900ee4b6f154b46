#include <cstdio>
#include <memory>

#include "ir/outline.h"
#include "tools/errors.h"
#include "tools/model_file.h"
#include "tools/output_files.h"
#include "tools/verbs.h"

namespace remat::tools {
namespace {

struct StripArguments {
  std::string file;
  std::string output;
  std::vector<std::string> libraries;
};

/// Strips every method of the module and of those in it, and returns their names: `forward`,
/// `encoder.forward`. Modules of one type share their methods.
std::vector<std::string> stripAll(const torch::jit::Module& root) {
  std::vector<std::string> stripped;
  for (const auto& [path, module] : root.named_modules()) {
    torch::jit::Module holder = module;
    for (const std::string& method : ir::optimizedMethods(holder)) {
      ir::strip(holder, method);
      stripped.push_back((path.empty() ? "" : path + ".") + method);
    }
  }
  return stripped;
}

int stripFile(const StripArguments& arguments) {
  checkWritable(arguments.output);
  loadLibraries(arguments.libraries);
  ModelFile file = loadModel(arguments.file, std::nullopt);
  const std::vector<std::string> methods = stripAll(file.module);
  if (methods.empty()) {
    throw refused(arguments.file +
                  ": holds no regions, so there is nothing to strip; use it as it is");
  }
  OutputFiles files;
  writeModel(file.module, file.extra_files, /*annotations=*/nullptr, files.add(arguments.output));
  files.commit();
  for (const std::string& method : methods) {
    std::printf("%s: %s has its original graph again\n", arguments.output.c_str(), method.c_str());
  }
  return kDone;
}

}  // namespace

void addStripVerb(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<StripArguments>();
  CLI::App* verb = app.add_subcommand("strip", "Gives an optimised model its original graph back");
  verb->add_option("FILE", arguments->file, "An optimised model")->required();
  verb->add_option("-o,--output", arguments->output, "Where the original model goes")
      ->type_name("FILE")
      ->required();
  verb->add_option("--library", arguments->libraries,
                   "A shared library that registers custom operators")
      ->type_name("FILE.so")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->footer("Example:\n  remat-opt strip small.pt -o resnet50.pt");
  verb->callback([arguments, &action] { action = [arguments] { return stripFile(*arguments); }; });
}

}  // namespace remat::tools
