#pragma once

#include <string>
#include <vector>

namespace remat::tools {

/// `; did you mean --input?` for `--inptu`: the known word that takes the fewest edits, where they
/// are few for the word's length. Empty where none is near.
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

}  // namespace remat::tools
