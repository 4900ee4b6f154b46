#pragma once

#include <list>
#include <string>

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

}  // namespace remat::tools
