#include "tools/errors.h"

#include <c10/util/Exception.h>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace remat::tools {
namespace {

/// Of TorchScript's traceback the last line: `RuntimeError: mat1 and mat2 shapes cannot be …`.
llvm::StringRef cause(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef, 16> lines;
  text.split(lines, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  if (lines.empty()) return text;
  if (!text.contains("Traceback of TorchScript")) return lines.front().trim();
  for (const llvm::StringRef line : llvm::reverse(lines)) {
    if (line.contains("Error: ") || line.contains("Exception: ")) return line.trim();
  }
  return lines.back().trim();
}

}  // namespace

std::string oneLine(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return cause(text).str();
}

}  // namespace remat::tools
