#include "tools/output_files.h"

namespace remat::tools {

AtomicFile& OutputFiles::add(const std::string& path) { return files_.emplace_back(path); }

void OutputFiles::add(const std::string& path, const std::string& text) {
  add(path).write(text.data(), text.size());
}

void OutputFiles::commit() {
  for (AtomicFile& file : files_) file.finish();
  for (AtomicFile& file : files_) file.commit();
}

}  // namespace remat::tools
