#include "tools/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Path.h"
#include "tools/errors.h"

namespace remat::tools {
namespace {

/// Temporary files that a signal handler removes: plain memory, since a handler may not allocate.
struct PendingFile {
  std::atomic<bool> used{false};
  std::array<char, 4096> path{};
};
std::array<PendingFile, 16> pending;

void removePendingAndDie(int signal) {
  for (PendingFile& file : pending) {
    if (file.used.load()) ::unlink(file.path.data());
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void handleSignals() {
  static const bool installed = [] {
    ::signal(SIGXFSZ, SIG_IGN);  // write says so, too
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction current {};
      ::sigaction(signal, nullptr, &current);
      if (current.sa_handler == SIG_IGN) continue;  // nohup
      struct sigaction action {};
      action.sa_handler = &removePendingAndDie;
      ::sigaction(signal, &action, nullptr);
    }
    return true;
  }();
  (void)installed;
}

/// -1 where all slots are taken or the path is too long: then a signal leaves the file behind.
int addPending(const std::string& path) {
  handleSignals();
  for (size_t i = 0; i < pending.size(); ++i) {
    if (pending[i].used.load() || path.size() >= pending[i].path.size()) continue;
    std::memcpy(pending[i].path.data(), path.c_str(), path.size() + 1);
    pending[i].used.store(true);
    return static_cast<int>(i);
  }
  return -1;
}

std::string folderOf(const std::string& path) {
  const std::string folder = llvm::sys::path::parent_path(path).str();
  return folder.empty() ? "." : folder;
}

/// Where the bytes of `path` go: the end of a chain of links.
std::string resolve(std::string path) {
  constexpr int kMostLinks = 40;
  for (int links = 0; links < kMostLinks; ++links) {
    std::array<char, PATH_MAX> buffer{};
    const ssize_t size = ::readlink(path.c_str(), buffer.data(), buffer.size());
    if (size < 0) break;
    const llvm::StringRef next(buffer.data(), static_cast<size_t>(size));
    path = next.startswith("/") ? next.str() : folderOf(path) + "/" + next.str();
  }
  return path;
}

mode_t permissionsFor(const std::string& target) {
  struct stat existing {};
  if (::stat(target.c_str(), &existing) == 0) return existing.st_mode & 0777U;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666U & ~mask;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(resolve(path_)) {
  if (path_.empty()) throw refused("an output file has no name; name a file to write");
  struct stat existing {};
  const bool exists = ::stat(target_.c_str(), &existing) == 0;
  if (exists && S_ISDIR(existing.st_mode)) {
    throw refused(path_ + ": is a folder; name a file to write");
  }
  if (exists && !S_ISREG(existing.st_mode)) {
    throw refused(path_ + ": is no regular file; name a file to write");
  }
  temporary_ = target_ + ".remat-" + std::to_string(::getpid()) + ".tmp";
  slot_ = addPending(temporary_);
  ::unlink(temporary_.c_str());  // of a process with the same number that was killed
  descriptor_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor_ < 0) {
    const int cause = errno;
    if (slot_ >= 0) pending[slot_].used.store(false);
    fail(cause);
  }
  ::fchmod(descriptor_, permissionsFor(target_));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  if (slot_ >= 0) pending[slot_].used.store(false);
}

void AtomicFile::write(const void* data, size_t bytes) noexcept {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0 && error_ == 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written > 0) {
      next += written;
      bytes -= static_cast<size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      error_ = written == 0 ? ENOSPC : errno;
    }
  }
}

void AtomicFile::finish() {
  if (error_ == 0 && ::fsync(descriptor_) != 0) error_ = errno;
  if (error_ != 0) fail(error_);
}

void AtomicFile::commit() {
  finish();
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail(errno);
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  const int folder = ::open(folderOf(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  ::fsync(folder);  // the name, too; some file systems refuse this on folders
  ::close(folder);
}

void AtomicFile::fail(int error) const {
  const std::string folder = folderOf(target_);
  const std::string cause = std::generic_category().message(error);
  switch (error) {
    case ENOENT:
      if (!std::filesystem::is_directory(folder)) {
        throw refused(path_ + ": folder " + folder + " doesn't exist; create it first");
      }
      [[fallthrough]];
    case EACCES:
    case EPERM:
    case EROFS:
      throw refused(path_ + ": folder " + folder + " can't be written (" + cause +
                    "); choose another or change its permissions");
    case ENOSPC:
    case EDQUOT:
      throw refused(path_ + ": the disk is full (" + cause + "); make room or choose another disk");
    case EFBIG:
      throw refused(path_ + ": the file would be larger than allowed (" + cause +
                    "); raise the limit (ulimit -f)");
    default:
      throw refused(path_ + ": can't be written: " + cause);
  }
}

void checkWritable(const std::string& path) { const AtomicFile probe(path); }

}  // namespace remat::tools
