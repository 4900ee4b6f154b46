#pragma once

#include <map>
#include <string>

namespace remat::runtime::test {

/// Calls of the CUDA runtime that have the host wait for the device, by name, since the last call
/// of this: LibTorch's and ours, whose symbols the test's executable takes the place of.
std::map<std::string, int> takeWaitingCalls();

/// How often the number of devices was asked for: that proves the interposition without a device.
int deviceCountCalls();

}  // namespace remat::runtime::test
