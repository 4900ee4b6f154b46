#include "tools/command_line.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Path.h"

namespace remat::tools {
namespace {

std::string& noted() {
  static std::string command;
  return command;
}

std::string quoted(llvm::StringRef argument) {
  static constexpr llvm::StringLiteral kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+.,:/@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == llvm::StringRef::npos) {
    return argument.str();
  }
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

void noteCommandLine(int argc, const char* const* argv) {
  std::string& command = noted();
  command = argc > 0 ? llvm::sys::path::filename(argv[0]).str() : "";
  for (int i = 1; i < argc; ++i) command += " " + quoted(argv[i]);
}

const std::string& commandLine() { return noted(); }

}  // namespace remat::tools
