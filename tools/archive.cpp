#include "tools/archive.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CRC.h"
#include "llvm/Support/FileSystem.h"
#include "passes/value_tensors.h"
#include "runtime/memory_statistics.h"
#include "tools/errors.h"
#include "tools/zip_entries.h"

namespace remat::tools {
namespace {

/// The first bytes of the file, after the checks that it can be read at all.
std::array<char, 8> readStart(const std::string& path) {
  if (llvm::sys::fs::is_directory(path)) throw refused(path + ": is a folder; name a saved model");
  if (llvm::sys::fs::exists(path) && !llvm::sys::fs::is_regular_file(path)) {
    throw refused(path + ": is no regular file; name a saved model");
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) {
      throw refused(path + ": no such file; check the path");
    }
    throw refused(path + ": can't be read: " + std::generic_category().message(errno));
  }
  std::array<char, 8> start{};
  if (std::fread(start.data(), 1, start.size(), file.get()) == 0) {
    throw refused(path + ": is empty; save the model again");
  }
  return start;
}

bool startsWith(const std::array<char, 8>& start, llvm::StringRef bytes, size_t offset = 0) {
  return llvm::StringRef(start.data(), start.size()).drop_front(offset).startswith(bytes);
}

/// Reads every entry once: LibTorch checks no checksums, and believes what it reads.
void checkEntries(const std::string& path, caffe2::serialize::PyTorchStreamReader& reader) {
  for (const ZipEntry& entry : zipEntries(path)) {
    const std::string name = llvm::StringRef(entry.name).split('/').second.str();
    const auto [data, size] = reader.getRecord(name);
    const llvm::ArrayRef<uint8_t> bytes(static_cast<const uint8_t*>(data.get()), size);
    if (llvm::crc32(bytes) != entry.checksum) {
      throw std::runtime_error("its entry " + name + " doesn't match its checksum");
    }
  }
}

std::vector<std::string> recordsOf(const std::string& path) {
  try {
    zipEntries(path);  // before a reader allocates by it
    caffe2::serialize::PyTorchStreamReader reader(path);
    checkEntries(path, reader);
    return reader.getAllRecords();
  } catch (const std::exception& error) {
    const std::string cause = oneLine(error);
    if (llvm::StringRef(cause).contains("central directory")) {
      throw refused(path + ": is a truncated archive (its end is missing); copy or save it again");
    }
    throw refused(path + ": is a damaged archive (" + cause + "); copy or save it again");
  }
}

}  // namespace

Archive readArchive(const std::string& path) {
  const std::array<char, 8> start = readStart(path);
  Archive archive;
  if (startsWith(start, "PTMF", 4)) {
    archive.kind = ArchiveKind::kLite;
    return archive;
  }
  if (startsWith(start, "\x80\x02")) {
    archive.kind = ArchiveKind::kLegacyPickle;
    return archive;
  }
  if (!startsWith(start, "PK")) {
    throw refused(
        path + ": is no zip archive, so no saved TorchScript model; save it with torch.jit.save");
  }
  archive.records = recordsOf(path);
  const bool has_code =
      llvm::any_of(archive.records, [](llvm::StringRef name) { return name.startswith("code/"); });
  if (llvm::is_contained(archive.records, "bytecode.pkl")) {
    archive.kind = ArchiveKind::kLite;
  } else if (!has_code || !llvm::is_contained(archive.records, "constants.pkl")) {
    archive.kind = ArchiveKind::kPickle;
  }
  return archive;
}

void checkTensors(const c10::IValue& value) {
  for (const at::Tensor& tensor : tensorsOf(value)) {
    if (tensor.layout() != c10::kStrided || !tensor.has_storage() || tensor.is_meta()) continue;
    const auto is_negative = [](int64_t number) { return number < 0; };
    if (llvm::any_of(tensor.sizes(), is_negative) || llvm::any_of(tensor.strides(), is_negative) ||
        tensor.storage_offset() < 0) {
      throw std::runtime_error("a tensor has a negative size");
    }
    const size_t storage = tensor.storage().nbytes();
    const void* const data = tensor.storage().data();
    const int64_t entry = data == nullptr ? 0 : runtime::allocatedBytes(data);
    if (at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                         tensor.storage_offset()) > storage ||
        (entry >= 0 && storage > static_cast<size_t>(entry))) {
      throw std::runtime_error("a tensor is larger than its entry");
    }
  }
}

}  // namespace remat::tools
