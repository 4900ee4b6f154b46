#include "tools/output_files.h"

#include <set>

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
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

namespace {

/// One name for one file, there already or not.
std::string canonical(const std::string& path) {
  namespace fs = llvm::sys::fs;
  llvm::SmallString<256> real;
  if (!fs::real_path(path, real)) return real.str().str();
  llvm::SmallString<256> folder(llvm::sys::path::parent_path(path));
  if (fs::real_path(folder.empty() ? "." : folder.str(), real)) {
    real = folder;  // is not there yet either
    fs::make_absolute(real);
  }
  llvm::sys::path::append(real, llvm::sys::path::filename(path));
  llvm::sys::path::remove_dots(real, /*remove_dot_dot=*/true);
  return real.str().str();
}

}  // namespace

void checkDistinct(const std::vector<std::string>& taken, const std::vector<std::string>& results) {
  std::set<std::string> known;
  for (const std::string& path : taken) known.insert(canonical(path));
  for (const std::string& path : results) {
    if (!path.empty() && !known.insert(canonical(path)).second) {
      throw usage(path + " is named for two things; give every file a path of its own");
    }
  }
}

}  // namespace remat::tools
