#include "tools/output_files.h"

#include <filesystem>
#include <set>

#include "tools/errors.h"

namespace remat::tools {

AtomicFile& OutputFiles::add(const std::string& path) { return files_.emplace_back(path); }

void OutputFiles::add(const std::string& path, const std::string& text) {
  add(path).write(text.data(), text.size());
}

void OutputFiles::commit() {
  for (AtomicFile& file : files_) file.finish();
  for (AtomicFile& file : files_) file.commit();
}

void checkDistinct(const std::vector<std::string>& taken, const std::vector<std::string>& results) {
  std::set<std::filesystem::path> known;
  for (const std::string& path : taken) known.insert(std::filesystem::weakly_canonical(path));
  for (const std::string& path : results) {
    if (!path.empty() && !known.insert(std::filesystem::weakly_canonical(path)).second) {
      throw usage(path + " is named for two things; give every file a path of its own");
    }
  }
}

}  // namespace remat::tools
