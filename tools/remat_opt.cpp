#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/memory_statistics.h"
#include "runtime/runtime.h"
#include "tools/command_line.h"
#include "tools/errors.h"
#include "tools/suggestion.h"
#include "tools/verbs.h"
#include "tools/version.h"

namespace remat::tools {
namespace {

constexpr const char* kDescription =
    "remat-opt makes a saved TorchScript model train in less memory: it decides which activations "
    "to keep and which "
    "to recompute in the backward pass, and writes a model that does so.";

constexpr const char* kExamples = R"(Examples:
  remat-opt plan     resnet50.pt --input 16x3x224x224
  remat-opt optimize resnet50.pt -o small.pt --input 16x3x224x224 --budget 50%
  remat-opt verify   resnet50.pt small.pt --input 16x3x224x224
  remat-opt dump     small.pt
  remat-opt strip    small.pt -o resnet50.pt
)";

constexpr const char* kExitCodes = R"(
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

std::vector<std::string> optionNames(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// What is wrong with the verb's options, where it can be said better than CLI11 does.
std::string mistakeIn(const CLI::App& verb, const CLI::ParseError& error) {
  for (const std::string& extra : verb.remaining()) {
    const std::string name = extra.substr(0, extra.find('='));
    if (name.size() < 2 || name[0] != '-') continue;
    return name + " is no option of " + verb.get_name() + suggestion(name, optionNames(verb));
  }
  for (const CLI::Option* option : verb.get_options()) {
    const bool single = option->get_expected_max() == 1 &&
                        option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw;
    if (single && option->count() > 1) return option->get_name() + " may be given once";
  }
  return error.what();
}

int parseFailure(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);  // help or version was asked for
  for (const CLI::App* verb : app.get_subcommands()) {
    return printError(mistakeIn(*verb, error) + "; see remat-opt " + verb->get_name() + " --help",
                      kUsage);
  }
  return printError(std::string(error.what()) + "; see remat-opt --help", kUsage);
}

/// The first argument must be a verb or an option. Throws ToolError.
void checkVerb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  const std::string given = argv[1];
  if (std::find(verbs.begin(), verbs.end(), given) != verbs.end()) return;
  throw usage("'" + given + "' is no verb" + suggestion(given, verbs) + "; see remat-opt --help");
}

/// Memory that was freed stays with the process. By default glibc gives large blocks back at once
/// and takes them anew for the next tensor, and the kernel clears their pages inside of the
/// operator that touches them first: of a ResNet-50's step that is a sixth, and which operator it
/// hits is chance.
void keepFreedMemory() {
  constexpr int kPad = 64 << 20;
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  ::mallopt(M_TOP_PAD, kPad);
}

int runTool(int argc, char** argv) {
  keepFreedMemory();
  CLI::App app(kDescription, "remat-opt");
  app.set_version_flag("--version", std::string("remat-opt ") + kToolVersion);
  app.require_subcommand(1);
  Action action;
  addOptimizeVerb(app, action);
  addPlanVerb(app, action);
  addVerifyVerb(app, action);
  addDumpVerb(app, action);
  addStripVerb(app, action);
  for (CLI::App* verb : app.get_subcommands({})) {
    verb->footer(verb->get_footer() + "\n" + kExitCodes);
  }
  app.footer(std::string(kExamples) + kExitCodes);
  wrapDescriptions(app);
  checkVerb(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return parseFailure(app, error);
  }
  // Before anything is loaded, so that every tensor is counted.
  runtime::installMemoryStatistics();
  runtime::initialize();
  const int code = action();
  // A failure of any earlier flush as well: the stream remembers it.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw refused("standard output: can't be written");
  }
  return code;
}

}  // namespace

}  // namespace remat::tools

int main(int argc, char** argv) {
  using remat::tools::printError;
  remat::tools::noteCommandLine(argc, argv);
  try {
    return remat::tools::runTool(argc, argv);
  } catch (const remat::tools::ToolError& error) {
    return printError(error.what(), error.code);
  } catch (const std::exception& error) {
    return printError(remat::tools::oneLine(error), remat::tools::kRefused);
  }
}
