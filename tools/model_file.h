#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/annotations.h"
#include "tools/atomic_file.h"

namespace remat::tools {

/// A saved model as it was read.
struct ModelFile {
  std::string path;
  torch::jit::Module module;
  std::unordered_map<std::string, std::string> extra_files;  ///< the user's own, kept on saving
  std::optional<ir::Annotations> annotations;                ///< of an optimised file
};

/// Opens shared libraries that register custom operators. Throws ToolError.
void loadLibraries(const std::vector<std::string>& libraries);

/// Reads a model onto `device`, or onto the devices it was saved from. Throws ToolError with one
/// line that names the file, the cause and what to do: no such file, not a zip, truncated, a
/// state_dict, a lite-interpreter file, an operator or class that a --library must bring, a file of
/// a newer Remat.
ModelFile loadModel(const std::string& path, std::optional<c10::Device> device);

/// The method, or a ToolError that lists those there are.
torch::jit::Method methodOf(const ModelFile& file, const std::string& name);

/// Writes the model into `out`, with the user's extra files and, where given, the annotations.
/// Nothing appears under the file's name before `out` is committed.
void writeModel(const torch::jit::Module& module,
                const std::unordered_map<std::string, std::string>& extra_files,
                const ir::Annotations* annotations, AtomicFile& out);

/// Writes the bytes of the file `path` into `out`: TorchScript's loader leaves out what nothing
/// reads, so that what was loaded and saved again can train otherwise. Throws ToolError.
void copyModel(const std::string& path, AtomicFile& out);

}  // namespace remat::tools
