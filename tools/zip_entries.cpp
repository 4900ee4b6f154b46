#include "tools/zip_entries.h"

#include <llvm/ADT/StringRef.h>
#include <llvm/Support/Endian.h>
#include <llvm/Support/MemoryBuffer.h>

#include <memory>
#include <stdexcept>

namespace remat::tools {
namespace {

using llvm::StringRef;
using llvm::support::endian::read16le;
using llvm::support::endian::read32le;
using llvm::support::endian::read64le;

constexpr size_t kEndBytes = 22;
constexpr size_t kLocatorBytes = 20;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kHeaderBytes = 46;
constexpr uint16_t kSizes64 = 1;  ///< the extra field with what 32 bits don't hold
constexpr uint32_t kElsewhere = 0xffffffff;
/// Deflate's best: 258 bytes for two bits.
constexpr uint64_t kMaxRatio = 1032;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

/// `bytes` of the file from `offset` on.
StringRef piece(StringRef file, uint64_t offset, uint64_t bytes) {
  if (offset > file.size() || bytes > file.size() - offset) fail("its directory is damaged");
  return file.substr(offset, bytes);
}

struct Directory {
  uint64_t entries;
  StringRef text;
};

Directory directoryOf(StringRef file) {
  const size_t end = file.rfind("PK\x05\x06");
  if (end == StringRef::npos) fail("its central directory is missing");
  const char* fields = piece(file, end, kEndBytes).data();
  uint64_t entries = read16le(fields + 10);
  uint64_t bytes = read32le(fields + 12);
  uint64_t offset = read32le(fields + 16);
  if (end >= kLocatorBytes) {
    const StringRef locator = piece(file, end - kLocatorBytes, kLocatorBytes);
    if (locator.startswith("PK\x06\x07")) {
      const StringRef end64 = piece(file, read64le(locator.data() + 8), kEnd64Bytes);
      if (!end64.startswith("PK\x06\x06")) fail("its directory is damaged");
      entries = read64le(end64.data() + 32);
      bytes = read64le(end64.data() + 40);
      offset = read64le(end64.data() + 48);
    }
  }
  return {entries, piece(file, offset, bytes)};
}

/// Sizes that stand in the extra field, in the order of the header's fields that lack them.
void readSizes64(StringRef extra, ZipEntry& entry) {
  while (extra.size() >= 4) {
    const uint16_t id = read16le(extra.data());
    StringRef field = piece(extra, 4, read16le(extra.data() + 2));
    extra = extra.drop_front(4 + field.size());
    if (id != kSizes64) continue;
    for (uint64_t* size : {&entry.bytes, &entry.packed_bytes}) {
      if (*size != kElsewhere) continue;
      *size = read64le(piece(field, 0, 8).data());
      field = field.drop_front(8);
    }
    return;
  }
}

}  // namespace

std::vector<ZipEntry> zipEntries(const std::string& path) {
  const auto opened = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                                  /*RequiresNullTerminator=*/false);
  if (!opened) fail(opened.getError().message());
  const StringRef file = (*opened)->getBuffer();
  Directory directory = directoryOf(file);
  std::vector<ZipEntry> entries;
  for (; directory.entries > 0; --directory.entries) {
    const StringRef header = piece(directory.text, 0, kHeaderBytes);
    if (!header.startswith("PK\x01\x02")) fail("its directory is damaged");
    const uint16_t name_bytes = read16le(header.data() + 28);
    const uint16_t extra_bytes = read16le(header.data() + 30);
    const uint16_t comment_bytes = read16le(header.data() + 32);
    ZipEntry entry;
    entry.name = piece(directory.text, kHeaderBytes, name_bytes).str();
    entry.checksum = read32le(header.data() + 16);
    entry.packed_bytes = read32le(header.data() + 20);
    entry.bytes = read32le(header.data() + 24);
    readSizes64(piece(directory.text, kHeaderBytes + name_bytes, extra_bytes), entry);
    if (entry.packed_bytes > file.size() || entry.bytes / kMaxRatio > entry.packed_bytes) {
      fail("the sizes of its entry " + entry.name + " are damaged");
    }
    const size_t used = kHeaderBytes + name_bytes + extra_bytes + comment_bytes;
    directory.text = directory.text.drop_front(piece(directory.text, 0, used).size());
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace remat::tools
