#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>

namespace remat::fuzz {

/// An archive's records by name, without what the writer adds of its own.
using Records = std::map<std::string, std::string>;

Records recordsOf(const std::string& archive);
/// A sound archive (sizes, checksums, alignment) of `records`.
std::string archiveOf(const Records& records);

/// Damages data. The same seed does the same damage everywhere: no <random> distribution, which
/// each standard library has its own of.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  /// From 0 to `end` - 1.
  size_t below(size_t end) { return end == 0 ? 0 : static_cast<size_t>(random_() % end); }

  /// One to four of: a bit flipped, a byte replaced, two pieces swapped, a piece left out, said
  /// twice or filled; or the end cut off.
  std::string bytes(std::string text);
  /// The same, or one to four numbers, words and pieces of the text replaced by others that JSON
  /// knows.
  std::string json(std::string text);
  /// One record damaged, in an archive that is sound.
  std::string record(Records records);

 private:
  void damage(std::string& text);
  void replaceToken(std::string& text);

  std::mt19937_64 random_;
};

}  // namespace remat::fuzz
