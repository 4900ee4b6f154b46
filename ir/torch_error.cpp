#include "ir/torch_error.h"

#include <c10/util/Exception.h>

#include <new>

#include "ir/remark.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace remat::ir {
namespace {

/// ` (at net.py:12)` for a traceback's `File "/home/me/net.py", line 12, in forward`.
std::string place(llvm::StringRef line) {
  static constexpr llvm::StringLiteral kFile = "File \"";
  if (!line.consume_front(kFile)) return "";
  const auto [path, rest] = line.split("\", line ");
  const llvm::StringRef file = path.substr(path.rfind('/') + 1);
  return " (at " + file.str() + ":" + rest.split(',').first.str() + ")";
}

/// Of TorchScript's traceback the last line, with its place: `RuntimeError: mat1 and mat2 shapes
/// cannot be …`.
std::string cause(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef, 16> lines;
  text.split(lines, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  if (lines.empty()) return text.str();
  if (!text.contains("Traceback of TorchScript")) return lines.front().trim().str();
  std::string result = lines.back().trim().str();
  for (size_t i = lines.size(); i-- > 0;) {
    if (!lines[i].contains("Error: ") && !lines[i].contains("Exception: ")) continue;
    result = lines[i].trim().str();
    lines.resize(i);
    break;
  }
  for (const llvm::StringRef line : llvm::reverse(lines)) {
    if (const std::string where = place(line.trim()); !where.empty()) return result + where;
  }
  return result;
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
  return "out of memory: " + formatBytes(bytes) + " for one tensor could not be had";
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
  if (std::string memory = outOfMemory(text); !memory.empty()) return memory;
  return cause(text);
}

}  // namespace remat::ir
