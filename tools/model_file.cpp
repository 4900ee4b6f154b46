#include "tools/model_file.h"

#include <dlfcn.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>

#include <regex>
#include <utility>

#include "ir/names.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include "tools/archive.h"
#include "tools/errors.h"

namespace remat::tools {
namespace {

void refuseOtherKinds(const std::string& path, ArchiveKind kind) {
  switch (kind) {
    case ArchiveKind::kTorchScript:
      return;
    case ArchiveKind::kLite:
      throw refused(path +
                    ": is a lite-interpreter file, which can't be trained; save the model with "
                    "torch.jit.save instead of _save_for_lite_interpreter");
    case ArchiveKind::kPickle:
    case ArchiveKind::kLegacyPickle:
      throw refused(path +
                    ": holds tensors but no code (a state_dict saved with torch.save?); save the "
                    "model itself with torch.jit.save(torch.jit.script(model), FILE)");
  }
}

/// What loading failed on, in one line for the user.
ToolError loadError(const std::string& path, const std::exception& error) {
  const std::string text = error.what();
  std::smatch match;
  static const std::regex unknown_op(R"(Unknown builtin op: ([\w:.]+\w))");
  static const std::regex unknown_class(R"(__torch__\.torch\.classes\.([\w.]+\w))");
  if (std::regex_search(text, match, unknown_op)) {
    const std::string op = match[1];
    if (llvm::StringRef(op).startswith("remat::")) {
      return refused(path + ": uses " + op +
                     ", which this version lacks: the file was made by a newer "
                     "Remat; use that version");
    }
    return refused(path + ": uses the custom operator " + op +
                   "; load the library that registers it with --library FILE.so");
  }
  if (std::regex_search(text, match, unknown_class)) {
    return refused(path + ": uses the custom class " + match[1].str() +
                   "; load the library that registers it with --library FILE.so");
  }
  return refused(path + ": can't be loaded: " + oneLine(error) +
                 "; save the model again with torch.jit.save");
}

/// The version that a checkpoint call in `block` names, where it is newer than ours; otherwise -1.
int64_t newerVersion(const torch::jit::Block& block) {
  static const auto checkpoint = c10::Symbol::fromQualString(ir::kCheckpoint);
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == checkpoint && node->inputs().size() == 4) {
      const auto version = torch::jit::constant_as<int64_t>(node->input(3));
      if (version && *version > ir::kFormatVersion) return *version;
    }
    for (const torch::jit::Block* inner : node->blocks()) {
      if (const int64_t version = newerVersion(*inner); version >= 0) return version;
    }
  }
  return -1;
}

void checkConstants(const torch::jit::Block& block) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == torch::jit::prim::Constant) {
      if (const auto value = torch::jit::toIValue(node->output())) checkTensors(*value);
    }
    for (const torch::jit::Block* inner : node->blocks()) checkConstants(*inner);
  }
}

/// Of all functions, those of submodules and those that only others call as well.
void checkConstants(const torch::jit::CompilationUnit& unit) {
  for (torch::jit::Function* function : unit.get_functions()) {
    checkConstants(*torch::jit::toGraphFunction(*function).graph()->block());
  }
}

void refuseNewerFormat(const std::string& path, const torch::jit::Module& module) {
  for (const torch::jit::Method& method : module.get_methods()) {
    const int64_t version = newerVersion(*method.graph()->block());
    if (version < 0) continue;
    throw refused(path + ": has format version " + std::to_string(version) +
                  ", this is a Remat for version " + std::to_string(ir::kFormatVersion) +
                  ": the file was made by a newer Remat; use that version");
  }
}

std::optional<ir::Annotations> takeAnnotations(ModelFile& file) {
  const auto found = file.extra_files.find(ir::kAnnotationsFile);
  if (found == file.extra_files.end()) return std::nullopt;
  const std::string text = std::move(found->second);
  file.extra_files.erase(found);
  try {
    return ir::annotationsFromJson(text);
  } catch (const std::exception& error) {
    throw refused(file.path + ": its entry " + ir::kAnnotationsFile +
                  " can't be read: " + error.what() + "; optimise the model again");
  }
}

}  // namespace

void loadLibraries(const std::vector<std::string>& libraries) {
  for (const std::string& library : libraries) {
    // A name without a slash would be searched on the library path, not here.
    const std::string path = library.find('/') == std::string::npos ? "./" + library : library;
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw refused(library + ": can't be loaded as a library: " + ::dlerror());
    }
  }
}

ModelFile loadModel(const std::string& path, std::optional<c10::Device> device) {
  const Archive archive = readArchive(path);
  refuseOtherKinds(path, archive.kind);
  ModelFile file;
  file.path = path;
  for (const llvm::StringRef record : archive.records) {
    if (record.startswith("extra/")) file.extra_files[record.drop_front(6).str()] = "";
  }
  try {
    file.module = torch::jit::load(path, device, file.extra_files);
    checkTensors(file.module._ivalue());
    checkConstants(*file.module._ivalue()->compilation_unit());
  } catch (const std::exception& error) {
    throw loadError(path, error);
  }
  refuseNewerFormat(path, file.module);
  file.annotations = takeAnnotations(file);
  return file;
}

torch::jit::Method methodOf(const ModelFile& file, const std::string& name) {
  if (const auto method = file.module.find_method(name)) return *method;
  std::string names;
  for (const torch::jit::Method& method : file.module.get_methods()) {
    if (llvm::StringRef(method.name()).startswith("remat_")) continue;
    names += (names.empty() ? "" : ", ") + method.name();
  }
  throw refused(file.path + ": has no method " + name + "; " +
                (names.empty() ? "it has none" : "choose with --method from: " + names));
}

void writeModel(const torch::jit::Module& module,
                const std::unordered_map<std::string, std::string>& extra_files,
                const ir::Annotations* annotations, AtomicFile& out) {
  torch::jit::ExtraFilesMap extra = extra_files;
  if (annotations != nullptr) extra[ir::kAnnotationsFile] = ir::toJson(*annotations);
  // The archive writer throws from its destructor after a failed write, so it is told that all is
  // well and the failure is reported by AtomicFile::finish.
  torch::jit::ExportModule(
      module,
      [&out](const void* data, size_t bytes) {
        out.write(data, bytes);
        return bytes;
      },
      extra);
  out.finish();
}

void copyModel(const std::string& path, AtomicFile& out) {
  const auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                                /*RequiresNullTerminator=*/false);
  if (!file) throw refused(path + ": can't be read: " + file.getError().message());
  out.write((*file)->getBufferStart(), (*file)->getBufferSize());
  out.finish();
}

}  // namespace remat::tools
