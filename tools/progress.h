#pragma once

#include <string>

namespace remat::tools {

/// One line on stderr that says what is going on, rewritten in place; silent unless stderr is a
/// terminal.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace remat::tools
