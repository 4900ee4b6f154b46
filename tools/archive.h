#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace remat::tools {

/// What a file is, judged by its bytes and by the names of its entries.
enum class ArchiveKind {
  kTorchScript,   ///< torch.jit.save, torch::save
  kLite,          ///< _save_for_lite_interpreter, as a zip or as a flatbuffer
  kPickle,        ///< torch.save: a zip without code
  kLegacyPickle,  ///< torch.save's format before 1.6
};

struct Archive {
  ArchiveKind kind = ArchiveKind::kTorchScript;
  std::vector<std::string> records;  ///< names of the entries, without the archive's folder
};

/// Throws ToolError with one clear line where there is no such file, it can't be read, it is no
/// archive, a truncated or a damaged one: every entry is read and compared with its checksum.
Archive readArchive(const std::string& path);

/// Throws std::runtime_error if a tensor in `value`, which came from an archive, reaches beyond its
/// storage or the storage beyond its entry: LibTorch believes the sizes that it reads. Entries'
/// sizes are known where runtime::installMemoryStatistics came before.
void checkTensors(const c10::IValue& value);

}  // namespace remat::tools
