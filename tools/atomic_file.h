#pragma once

#include <cstddef>
#include <string>

namespace remat::tools {

/// A file that appears whole or not at all: written beside `path` under a temporary name, flushed
/// to the disk, and renamed by `commit`. Without a commit nothing of it remains, also after SIGINT,
/// SIGTERM or SIGHUP. A path that is a symbolic link keeps being one. Throws ToolError naming
/// `path` where the folder doesn't exist or can't be written, or the disk is full.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. The first failure is remembered and reported by `finish`; later writes do nothing.
  void write(const void* data, size_t bytes) noexcept;
  /// Flushes to the disk: after it a commit can hardly fail.
  void finish();
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;    ///< as the user gave it
  std::string target_;  ///< with links resolved
  std::string temporary_;
  int descriptor_ = -1;
  int error_ = 0;  ///< errno of the first failed write
  int slot_ = -1;  ///< in the list of what a signal removes
};

/// Fails early, before the work: throws what an AtomicFile would.
void checkWritable(const std::string& path);

}  // namespace remat::tools
