#include "runtime/python/progress.h"

#include <memory>

#include "runtime/python/error_record.h"

namespace {

thread_local RematProgress progress_of_thread = nullptr;

}  // namespace

void remat_set_progress(RematProgress progress) { progress_of_thread = progress; }

namespace remat::python {

std::function<void(const std::string&)> currentProgress() {
  if (progress_of_thread == nullptr) return {};
  const RematProgress progress = progress_of_thread;
  const auto stopped = std::make_shared<bool>(false);
  return [progress, stopped](const std::string& text) {
    *stopped = *stopped || progress(text.c_str()) != 0;
    if (*stopped) throw Interrupted();
  };
}

}  // namespace remat::python
