#pragma once

namespace remat::tools {

/// While it lives, what is written to standard output goes to standard error: a model that prints
/// must not get between the results, which may be JSON.
class StdoutToStderr {
 public:
  StdoutToStderr();
  ~StdoutToStderr() { restore(); }
  StdoutToStderr(const StdoutToStderr&) = delete;
  StdoutToStderr& operator=(const StdoutToStderr&) = delete;

  /// Results may be printed from here on.
  void restore();

 private:
  int saved_ = -1;  ///< where standard output went; -1: it is as it was
};

}  // namespace remat::tools
