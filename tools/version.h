#pragma once

namespace remat::tools {

inline constexpr const char* kToolVersion = "0.1.0";

}  // namespace remat::tools
