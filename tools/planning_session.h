#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ir/remark.h"
#include "passes/remat.h"
#include "tools/common_options.h"
#include "tools/progress.h"

namespace remat::tools {

/// Runs `work` (a call into remat's front door); its errors become ToolErrors that name the model.
template <typename Work>
auto naming(const std::string& model, const Work& work);

[[noreturn]] void rethrowNamed(const std::string& model, const std::exception_ptr& error);

template <typename Work>
auto naming(const std::string& model, const Work& work) {
  try {
    return work();
  } catch (...) {
    rethrowNamed(model, std::current_exception());
  }
}

/// Remarks on stderr, those that save most first.
void printRemarks(std::vector<ir::Remark> remarks);

/// Notes on stderr about what the measured step leaves out: a loss outside of the model, evaluation
/// mode.
void printNotes(const Session& session);

/// Notes on stderr about what a profile can't be held to: kernels that aren't deterministic, what
/// another device's kernels save otherwise.
void printProfileNotes(const ir::Profile& profile, const StepOptions& step);

/// `12.3 %`.
std::string percent(double share);

}  // namespace remat::tools
