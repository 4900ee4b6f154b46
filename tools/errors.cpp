#include "tools/errors.h"

#include <c10/util/Exception.h>

#include <new>

#include "ir/remark.h"
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

/// What an allocator of LibTorch says when it fails, without its jargon; empty: it says other.
std::string outOfMemory(llvm::StringRef text) {
  if (!text.contains("can't allocate memory") && !text.contains("out of memory")) return "";
  static constexpr llvm::StringLiteral kTried = "tried to allocate ";
  const size_t found = text.find(kTried);
  if (found == llvm::StringRef::npos) return "out of memory";
  const llvm::StringRef amount = text.substr(found + kTried.size());
  int64_t bytes = 0;
  if (amount.take_until([](char c) { return c == ' '; }).getAsInteger(10, bytes)) {
    return "out of memory";
  }
  return "out of memory: " + ir::formatBytes(bytes) + " for one tensor could not be had";
}

}  // namespace

std::string oneLine(const std::exception& error) {
  // LibTorch's unpickler makes as much room as a damaged file says.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "more memory is asked for than there is";
  }
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  if (const std::string memory = outOfMemory(text); !memory.empty()) return memory;
  return cause(text).str();
}

}  // namespace remat::tools
