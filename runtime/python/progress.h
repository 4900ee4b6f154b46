#pragma once

#include <functional>
#include <string>

extern "C" {

/// Called with a line of what is going on; anything but 0 stops the work.
using RematProgress = int (*)(const char* text);

/// What operators that this thread calls from now on report to; null: nobody. Python's callbacks
/// take the interpreter's lock by themselves: operators run without it.
__attribute__((visibility("default"))) void remat_set_progress(RematProgress progress);
}

namespace remat::python {

/// Reports to what remat_set_progress was given on this thread, and throws Interrupted once it says
/// stop, and then each time: some callers take any exception for a model's. Empty: nobody listens.
std::function<void(const std::string&)> currentProgress();

}  // namespace remat::python
