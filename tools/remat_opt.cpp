#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>

#include "runtime/memory_statistics.h"
#include "runtime/runtime.h"
#include "tools/errors.h"
#include "tools/verbs.h"
#include "tools/version.h"

namespace remat::tools {
namespace {

constexpr const char* kDescription =
    "remat-opt makes a saved TorchScript model train in less memory: it decides which activations "
    "to keep and which "
    "to recompute in the backward pass, and writes a model that does so.";

constexpr const char* kFooter = R"(Examples:
  remat-opt plan     resnet50.pt --input 16x3x224x224
  remat-opt optimize resnet50.pt -o small.pt --input 16x3x224x224 --budget 50%
  remat-opt verify   resnet50.pt small.pt --input 16x3x224x224
  remat-opt dump     small.pt
  remat-opt strip    small.pt -o resnet50.pt

Exit codes: 0 done; 1 unreadable or refused model, input that does not fit, output that can't be written; 2 usage;
3 the budget can't be met, or verify measured above it; 4 verify found a difference. On any but 0 no output file
appears and an existing one is untouched.)";

int printError(const std::string& message, int code) {
  std::fprintf(stderr, "remat-opt: error: %s\n", message.c_str());
  return code;
}

/// `text` in lines of at most `width` characters; CLI11 indents them.
std::string wrapped(const std::string& text, size_t width) {
  std::istringstream words(text);
  std::string result;
  size_t column = 0;
  for (std::string word; words >> word;) {
    const bool fits = column > 0 && column + 1 + word.size() <= width;
    if (column > 0) result += fits ? ' ' : '\n';
    column = fits ? column + 1 + word.size() : word.size();
    result += word;
  }
  return result;
}

void wrapDescriptions(CLI::App& app) {
  constexpr size_t kWidth = 78;
  for (CLI::App* verb : app.get_subcommands({})) {
    for (CLI::Option* option : verb->get_options()) {
      option->description(wrapped(option->get_description(), kWidth));
    }
  }
}

int parseFailure(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);  // help or version was asked for
  std::string verb;
  for (const CLI::App* chosen : app.get_subcommands()) verb = " " + chosen->get_name();
  return printError(std::string(error.what()) + "; see remat-opt" + verb + " --help", kUsage);
}

int runTool(int argc, char** argv) {
  CLI::App app(kDescription, "remat-opt");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("remat-opt ") + kToolVersion);
  app.require_subcommand(1);
  Action action;
  addOptimizeVerb(app, action);
  addPlanVerb(app, action);
  addVerifyVerb(app, action);
  addDumpVerb(app, action);
  addStripVerb(app, action);
  wrapDescriptions(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return parseFailure(app, error);
  }
  // Before anything is loaded, so that every tensor is counted.
  runtime::installMemoryStatistics();
  runtime::initialize();
  return action();
}

}  // namespace
}  // namespace remat::tools

int main(int argc, char** argv) {
  using remat::tools::printError;
  try {
    return remat::tools::runTool(argc, argv);
  } catch (const remat::tools::ToolError& error) {
    return printError(error.what(), error.code);
  } catch (const std::exception& error) {
    return printError(remat::tools::oneLine(error), remat::tools::kRefused);
  }
}
