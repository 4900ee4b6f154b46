#include "tools/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "tools/errors.h"
#include "tools/output_files.h"

namespace remat::tools {
namespace {

// Not std::filesystem: libtorch.so exports a broken copy of it.
namespace fs = llvm::sys::fs;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/atomic_file_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_directories(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    std::error_code error;
    for (fs::directory_iterator it(folder_, error), end; it != end && !error; it.increment(error)) {
      result.push_back(llvm::sys::path::filename(it->path()).str());
    }
    return result;
  }

  static std::string read(const std::string& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  std::string folder_;
};

TEST_F(AtomicFileTest, AppearsOnCommit) {
  {
    AtomicFile file(path("out"));
    file.write("abc", 3);
    EXPECT_FALSE(fs::exists(path("out")));
    file.commit();
  }
  EXPECT_EQ(read(path("out")), "abc");
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(AtomicFileTest, WithoutCommitTheExistingFileIsUntouched) {
  write(path("out"), "old");
  {
    AtomicFile file(path("out"));
    file.write("new", 3);
    file.finish();
  }
  EXPECT_EQ(read(path("out")), "old");
  EXPECT_EQ(names().size(), 1U);
}

TEST_F(AtomicFileTest, KeepsPermissionsAndLinks) {
  write(path("real"), "old");
  ::chmod(path("real").c_str(), 0640);
  ASSERT_EQ(::symlink("real", path("link").c_str()), 0);
  AtomicFile file(path("link"));
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(fs::is_symlink_file(path("link")));
  EXPECT_EQ(read(path("real")), "new");
  EXPECT_EQ(*fs::getPermissions(path("real")), static_cast<fs::perms>(0640));
}

void expectRefusal(const std::string& path, const std::string& message) {
  try {
    checkWritable(path);
    FAIL() << path << " was accepted";
  } catch (const ToolError& error) {
    EXPECT_EQ(error.code, kRefused);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST_F(AtomicFileTest, NoSuchFolder) { expectRefusal(path("none/out"), "doesn't exist"); }
TEST_F(AtomicFileTest, AFolder) { expectRefusal(folder_, "is a folder"); }
TEST_F(AtomicFileTest, ADevice) { expectRefusal("/dev/null", "no regular file"); }

TEST_F(AtomicFileTest, FolderThatCantBeWritten) {
  const std::string locked = path("locked");
  ASSERT_EQ(::mkdir(locked.c_str(), 0755), 0);
  if (::geteuid() != 0) {
    ::chmod(locked.c_str(), 0500);
    expectRefusal(locked + "/out", "can't be written");
    return;
  }
  // Root may write anywhere: ask as somebody else, in a process of its own.
  ::chmod(folder_.c_str(), 0755);
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setuid(kNobody) != 0) ::_exit(3);
    try {
      checkWritable(locked + "/out");
      ::_exit(1);
    } catch (const ToolError& error) {
      ::_exit(std::string(error.what()).find("can't be written") == std::string::npos ? 2 : 0);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// Runs `body` in a process of its own, whose files may not grow beyond `bytes`.
template <typename Body>
int underSizeLimit(rlim_t bytes, const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      body();
    } catch (const ToolError& error) {
      ::_exit(error.code);
    }
    ::_exit(kDone);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(AtomicFileTest, FailedWritesAreReportedAndNothingRemains) {
  write(path("out"), "old");
  const int code = underSizeLimit(1000, [&] {
    AtomicFile file(path("out"));
    const std::string much(5000, 'x');
    file.write(much.data(), much.size());
    file.write(much.data(), much.size());
    file.commit();
  });
  EXPECT_EQ(code, kRefused);
  EXPECT_EQ(read(path("out")), "old");
  EXPECT_EQ(names().size(), 1U);
}

TEST_F(AtomicFileTest, FilesAppearTogetherOrNotAtAll) {
  const int code = underSizeLimit(1000, [&] {
    OutputFiles files;
    files.add(path("small"), "fits");
    files.add(path("large"), std::string(5000, 'x'));
    files.commit();
  });
  EXPECT_EQ(code, kRefused);
  EXPECT_TRUE(names().empty());
}

TEST_F(AtomicFileTest, SignalsRemoveTheTemporaryFile) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = ::fork();
    if (child == 0) {
      AtomicFile file(path("out"));
      file.write("abc", 3);
      ::raise(signal);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_TRUE(names().empty());
  }
}

}  // namespace
}  // namespace remat::tools
