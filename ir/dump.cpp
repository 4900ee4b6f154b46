#include "ir/dump.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>

#include "ir/remark.h"

namespace remat::ir {
namespace {

bool isDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Drops `___torch_mangle_12.` from qualified names.
std::string withoutMangling(const std::string& line) {
  static const std::string kMangle = "___torch_mangle_";
  std::string result;
  size_t begin = 0;
  while (true) {
    const size_t found = line.find(kMangle, begin);
    if (found == std::string::npos) return result + line.substr(begin);
    size_t end = found + kMangle.size();
    while (end < line.size() && isDigit(line[end])) ++end;
    const bool whole = end < line.size() && line[end] == '.';
    result += line.substr(begin, (whole ? found : end) - begin);
    begin = whole ? end + 1 : end;
  }
}

/// Drops a comment ` # /folder/file.py:12:4` at the end of a line: graphs print it in nested blocks
/// even when asked not to.
std::string withoutLocation(const std::string& line) {
  const size_t hash = line.rfind(" # ");
  if (hash == std::string::npos) return line;
  const std::string comment = line.substr(hash + 3);
  size_t at = comment.size();
  for (int colons = 0; colons < 2; ++colons) {
    size_t digits = at;
    while (digits > 0 && isDigit(comment[digits - 1])) --digits;
    if (digits == at || digits == 0 || comment[digits - 1] != ':') return line;
    at = digits - 1;
  }
  const bool one_word = comment.find_first_of(" \"'") == std::string::npos;
  return one_word ? line.substr(0, hash) : line;
}

/// Graphs print a node without outputs as ` = prim::If(…)`, which parseIR does not read.
std::string withoutBareEquals(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  if (begin == std::string::npos || line.compare(begin, 2, "= ") != 0) return line;
  // The printer indents them by one more.
  return line.substr(0, begin - std::min<size_t>(begin, 1)) + line.substr(begin + 2);
}

/// `layer1_0_conv1` of `  %layer1_0_conv1.1 : Tensor = …` (loading numbers names); empty if the
/// line makes no named value, or gets an attribute: a module may have the name of what it makes.
std::string madeName(const std::string& line) {
  const size_t percent = line.find_first_not_of(' ');
  if (percent == std::string::npos || line[percent] != '%') return {};
  const size_t end = line.find_first_of(" ,", percent);
  if (end == std::string::npos || line.find(" = ", end) == std::string::npos) return {};
  if (line.find(" = prim::GetAttr[", end) != std::string::npos) return {};
  std::string name = line.substr(percent + 1, end - percent - 1);
  const size_t dot = name.rfind('.');
  if (dot != std::string::npos &&
      name.find_first_not_of("0123456789", dot + 1) == std::string::npos) {
    name.resize(dot);
  }
  return name;
}

std::string comment(const ValueNote& note) {
  std::string text =
      std::string(" # ") + (note.kept ? "kept, " : "recomputed, ") + formatBytes(note.bytes);
  if (!note.reason.empty()) text += ": " + note.reason;
  std::string place = note.module_path;
  if (!note.source.empty()) place += (place.empty() ? "(" : " (") + note.source + ")";
  return place.empty() ? text : text + "; " + place;
}

class Printer {
 public:
  explicit Printer(const Annotations* annotations) : annotations_(annotations) {}

  std::string print(torch::jit::Graph& graph) {
    // A copy numbers unnamed values anew, in program order.
    std::istringstream lines(graph.copy()->toString(/*print_source_locations=*/false));
    std::string body;
    for (std::string line; std::getline(lines, line);) {
      line = withoutBareEquals(withoutLocation(withoutMangling(line)));
      body += line + noteFor(line) + "\n";
    }
    return summary() + body;
  }

 private:
  std::string noteFor(const std::string& line) {
    if (annotations_ == nullptr) return {};
    const auto note = annotations_->values.find(madeName(line));
    if (note == annotations_->values.end()) return {};
    auto& [count, bytes] = note->second.kept ? kept_ : recomputed_;
    ++count;
    bytes += note->second.bytes;
    return comment(note->second);
  }

  std::string summary() const {
    if (annotations_ == nullptr) return {};
    const auto line = [](const char* what, const std::pair<int, int64_t>& sum) {
      return std::string("# ") + what + ": " + std::to_string(sum.first) +
             (sum.first == 1 ? " value, " : " values, ") + formatBytes(sum.second) + "\n";
    };
    return line("kept", kept_) + line("recomputed", recomputed_);
  }

  const Annotations* annotations_;
  std::pair<int, int64_t> kept_;
  std::pair<int, int64_t> recomputed_;
};

}  // namespace

std::string dumpGraph(const torch::jit::Graph& graph, const Annotations* annotations) {
  // Copying reads only.
  return Printer(annotations).print(const_cast<torch::jit::Graph&>(graph));
}

}  // namespace remat::ir
