#include "ir/json_text.h"

#include <llvm/Support/JSON.h>

namespace remat::ir {

std::string utf8Text(const std::string& bytes) {
  return llvm::json::isUTF8(bytes) ? bytes : llvm::json::fixUTF8(bytes);
}

bool nestsDeeperThan(int most, const std::string& json) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > most) return true;
  }
  return false;
}

}  // namespace remat::ir
