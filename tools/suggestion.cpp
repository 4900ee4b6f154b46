#include "tools/suggestion.h"

#include "llvm/ADT/StringRef.h"

namespace remat::tools {

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  size_t fewest = (word.size() + 2) / 3;  // more edits than that make another word
  std::string nearest;
  for (const std::string& candidate : known) {
    const size_t edits = llvm::StringRef(word).edit_distance(candidate);
    if (edits > fewest || (edits == fewest && !nearest.empty())) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace remat::tools
