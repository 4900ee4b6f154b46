#pragma once

#include <list>
#include <string>
#include <vector>

#include "tools/atomic_file.h"

namespace remat::tools {

/// Several files that appear together: all are written and flushed before the first gets its name.
class OutputFiles {
 public:
  /// An empty file to write into; it stays where it is.
  AtomicFile& add(const std::string& path);
  void add(const std::string& path, const std::string& text);
  void commit();

 private:
  std::list<AtomicFile> files_;
};

/// Usage error if one of `results` has the path of another or of one in `taken`: no two results can
/// have one path, and none but the optimised model may replace the model. Empty paths are passed
/// over.
void checkDistinct(const std::vector<std::string>& taken, const std::vector<std::string>& results);

}  // namespace remat::tools
