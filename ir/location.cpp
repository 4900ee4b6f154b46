#include "ir/location.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/scope.h>

#include <optional>
#include <vector>

#include "ir/remark.h"

namespace remat::ir {
namespace {

using torch::jit::SourceRange;

struct Frame {
  std::string file;
  size_t line = 0;
};

bool isLibraryCode(const std::string& file) {
  return file.find("/torch/") != std::string::npos || file.rfind("torch/", 0) == 0;
}

/// Generated code of an archive: says nothing to the user.
bool isGeneratedCode(const std::string& file) {
  return file.rfind("code/", 0) == 0 || file.find("__torch__") != std::string::npos ||
         file == "<string>";
}

/// A traced node's source is its Python stack, innermost first: `/a/model.py(41): forward`.
std::vector<Frame> framesOfTrace(const std::string& text) {
  std::vector<Frame> frames;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t close = line.find("): ");
    const size_t open = close == std::string::npos ? close : line.rfind('(', close);
    if (open == std::string::npos || open + 1 == close) continue;
    const std::string number = line.substr(open + 1, close - open - 1);
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    frames.push_back({line.substr(0, open), std::stoul(number)});
  }
  return frames;
}

/// Frames of one source range, innermost first.
std::vector<Frame> framesOf(const SourceRange& range) {
  SourceRange original = range;
  if (auto generator = range.findSourceRangeThatGenerated()) original = *generator;
  if (!original.source()) return {};
  std::vector<Frame> frames = framesOfTrace(original.source()->text_str().str());
  if (!frames.empty()) return frames;
  if (auto position = original.file_line_col()) {
    const auto& [file, line, column] = *position;
    if (!file.empty() && !isGeneratedCode(file)) frames.push_back({file, line});
  }
  return frames;
}

std::string baseName(const std::string& file) {
  const size_t slash = file.find_last_of("/\\");
  return slash == std::string::npos ? file : file.substr(slash + 1);
}

std::string ownSourceOf(const torch::jit::Node& node) {
  std::vector<Frame> frames = framesOf(node.sourceRange());
  if (const auto stack = node.callstack()) {
    auto calls = (*stack)->vec();
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      for (Frame& frame : framesOf(std::get<1>(*call))) frames.push_back(std::move(frame));
    }
  }
  if (frames.empty()) return {};
  for (const Frame& frame : frames) {
    if (!isLibraryCode(frame.file)) return baseName(frame.file) + ":" + std::to_string(frame.line);
  }
  return baseName(frames.front().file) + ":" + std::to_string(frames.front().line);
}

/// A statement without a range of its own is where what it uses was made.
std::string sourceOf(const torch::jit::Node& node) {
  std::string source = ownSourceOf(node);
  for (size_t i = node.inputs().size(); source.empty() && i-- > 0;) {
    const torch::jit::Node& producer = *node.input(i)->node();
    if (producer.kind() != c10::prim::Constant) source = ownSourceOf(producer);
  }
  return source;
}

std::string modulePathOf(const torch::jit::Node& node) {
  const auto stack = node.callstack();
  if (!stack) return {};
  std::string path;
  for (const auto& call : (*stack)->vec()) {
    const auto& instance = std::get<2>(call);
    if (!instance) continue;
    const std::string name = instance->instance_name();
    if (name.empty() || name == "SELF" || name == "INSTANCE_NAME_UNKNOWN") continue;
    if (!path.empty()) path += '.';
    path += name;
  }
  return path;
}

}  // namespace

Location locate(const torch::jit::Node& node) { return {modulePathOf(node), sourceOf(node)}; }

std::string locationPrefix(const torch::jit::Node& node) {
  const Location location = locate(node);
  std::string prefix;
  if (!location.source.empty()) prefix += location.source + ": ";
  if (!location.module_path.empty()) prefix += modulePathText(location.module_path) + ": ";
  return prefix;
}

}  // namespace remat::ir
