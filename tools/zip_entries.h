#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::tools {

/// What a zip archive's directory says of one of its entries.
struct ZipEntry {
  std::string name;           ///< with its folder
  uint32_t checksum = 0;      ///< CRC-32 of the unpacked bytes
  uint64_t packed_bytes = 0;  ///< in the file
  uint64_t bytes = 0;         ///< unpacked
};

/// The directory of the archive, with the sizes checked: packed bytes fit the file, and no packing
/// makes more of them than `bytes`. LibTorch's reader believes both, and never looks at checksums.
/// Throws std::runtime_error saying what is wrong. Layout: PKWARE's APPNOTE.TXT, 4.3.12 to 4.3.16.
std::vector<ZipEntry> zipEntries(const std::string& path);

}  // namespace remat::tools
