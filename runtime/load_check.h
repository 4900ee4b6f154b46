#pragma once

#include <string>

namespace remat::runtime {

/// Why `library`, compiled against LibTorch `built` (`2.11.0`), can't run in a process whose
/// LibTorch says `configuration` of itself (at::show_config): another major or minor version, whose
/// classes may be laid out differently. Empty where it can, or where the configuration names no
/// version.
std::string libtorchMismatch(const std::string& library, const std::string& built,
                             const std::string& configuration);

}  // namespace remat::runtime
