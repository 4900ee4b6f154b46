#pragma once

#include <cstdint>
#include <string>

#include "passes/options.h"

namespace remat::tools {

/// `50%` of the original's step peak; `900MB`, `2GiB`: bytes of the step peak; `min`: as low as is
/// reachable. Throws std::invalid_argument saying what is wrong.
Budget parseBudget(const std::string& text);

/// `200MB`, `1.5GiB`, `1024B`: powers of ten without an i, of two with it. Throws
/// std::invalid_argument.
int64_t parseBytes(const std::string& text);

/// `20%` as 0.2; any percentage of at least zero. Throws std::invalid_argument.
double parsePercentage(const std::string& text);

/// `67T,4.8T` or `6.7e13,4.8e12`: floating-point operations and bytes per second, with k, M, G, T
/// or P for powers of a thousand. Throws std::invalid_argument.
ir::Roofline parseRoofline(const std::string& text);

/// `90%` of a device's memory as share, or `24GiB` as bytes; neither is zero. Throws
/// std::invalid_argument.
struct MemorySize {
  int64_t bytes = 0;
  double share = 0;
  bool given() const { return bytes > 0 || share > 0; }
};
MemorySize parseMemorySize(const std::string& text);

/// Bytes of optimiser state for each parameter element of `element_size` bytes: `sgd` 0, `momentum`
/// one copy, `adam` two copies of the parameter, or a number of bytes. Throws
/// std::invalid_argument.
double optimizerBytesPerElement(const std::string& text, int64_t element_size);

}  // namespace remat::tools
