#include "tools/progress.h"

#include <unistd.h>

#include <cstdio>

namespace remat::tools {

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  constexpr const char* kEraseLine = "\r\033[K";
  std::fprintf(stderr, "%s%s …", kEraseLine, text.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace remat::tools
