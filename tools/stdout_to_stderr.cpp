#include "tools/stdout_to_stderr.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace remat::tools {
namespace {

void flush() {
  std::cout.flush();
  std::fflush(stdout);
}

}  // namespace

StdoutToStderr::StdoutToStderr() {
  flush();
  saved_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (saved_ >= 0) ::dup2(STDERR_FILENO, STDOUT_FILENO);
}

void StdoutToStderr::restore() {
  if (saved_ < 0) return;
  flush();
  ::dup2(saved_, STDOUT_FILENO);
  ::close(saved_);
  saved_ = -1;
}

}  // namespace remat::tools
