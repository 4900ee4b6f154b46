// Runs the cases of tests/ir/*.ir. A file begins with `# pass: NAME`; cases are split by `# -----`.
// A case is a graph for parseIR, `# CHECK` lines for FileCheck, and options as comments:
//
//   # keep: NAME …          rewrite: values to mark
//   # allow-op: NAME …      legality
//   # note: NAME kept|recomputed BYTES REASON      dump
//   # unchanged             the pass says that nothing changed, and the text is the same

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/testing/file_check.h>

#include <cctype>
#include <fstream>
#include <map>
#include <sstream>

#include "ir/annotations.h"
#include "ir/dump.h"
#include "ir/region_order.h"
#include "ir/verifier.h"
#include "passes/fold_constants.h"
#include "passes/functionalize.h"
#include "passes/legality.h"
#include "passes/prepare.h"
#include "passes/rewriter.h"

namespace remat {
namespace {

using torch::jit::Graph;
using torch::jit::Value;

struct Case {
  std::string pass;
  std::string text;
};

std::string optionOf(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  const std::string begin = "# " + key + ":";
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(begin, 0) == 0) return line.substr(begin.size());
  }
  return {};
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

/// The parser renumbers values: they get the names that they have in the text.
std::shared_ptr<Graph> parse(const std::string& text,
                             std::unordered_map<std::string, Value*>& values) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(text, graph.get(), values);
  for (auto& [name, value] : values) {
    if (std::isalpha(static_cast<unsigned char>(name[0])) != 0) value->setDebugName(name);
  }
  return graph;
}

ir::Annotations notesOf(const std::string& text) {
  ir::Annotations annotations;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# note:", 0) != 0) continue;
    std::istringstream fields(line.substr(7));
    std::string name;
    std::string decision;
    ir::ValueNote note;
    fields >> name >> decision >> note.bytes;
    std::getline(fields >> std::ws, note.reason);
    note.kept = decision == "kept";
    annotations.values[name] = note;
  }
  return annotations;
}

struct Outcome {
  std::string text;
  bool changed = true;
};

Outcome run(const std::string& pass, const std::string& text) {
  std::unordered_map<std::string, Value*> values;
  const std::shared_ptr<Graph> graph = parse(text, values);
  Outcome outcome;
  std::ostringstream out;
  if (pass == "prepare" || pass == "functionalize" || pass == "fold") {
    outcome.changed = pass == "prepare"         ? prepareInlined(graph)
                      : pass == "functionalize" ? functionalize(graph)
                                                : foldConstants(graph);
    graph->lint();
    out << graph->toString(false);
  } else if (pass == "legality") {
    LegalityOptions options;
    options.allow_ops = words(optionOf(text, "allow-op"));
    const Legality legality = analyzeLegality(graph, options);
    for (const ir::Remark& remark : legality.remarks())
      out << remark.op << ": " << str(remark) << "\n";
    for (size_t i = 0; i < legality.size(); ++i) {
      if (legality.isReplayable(static_cast<int32_t>(i))) {
        out << "replayable " << legality.verdict(static_cast<int32_t>(i)).op << "\n";
      }
    }
  } else if (pass == "rewrite") {
    const ir::RegionOrder order = ir::regionOrder(*graph);
    std::vector<int32_t> keep;
    for (const std::string& name : words(optionOf(text, "keep"))) {
      keep.push_back(order.value_ids.at(values.at(name)));
    }
    std::vector<int32_t> drop;
    for (const std::string& name : words(optionOf(text, "drop"))) {
      drop.push_back(order.value_ids.at(values.at(name)));
    }
    std::vector<int32_t> regenerate;
    for (const std::string& name : words(optionOf(text, "regenerate"))) {
      regenerate.push_back(order.value_ids.at(values.at(name)));
    }
    const std::string before = graph->toString(false);
    out << rewriteRegion(graph, {keep, drop, regenerate})->toString(false);
    EXPECT_EQ(before, graph->toString(false)) << "the prepared graph was changed";
  } else if (pass == "verify") {
    for (const std::string& line : ir::verifyRegion(*graph)) out << line << "\n";
    out << "end of violations\n";
  } else if (pass == "dump") {
    const ir::Annotations annotations = notesOf(text);
    out << ir::dumpGraph(*graph, annotations.values.empty() ? nullptr : &annotations);
    std::unordered_map<std::string, Value*> again;
    EXPECT_EQ(ir::dumpGraph(*parse(out.str(), again)), ir::dumpGraph(*graph)) << "not read back";
  } else {
    ADD_FAILURE() << "unknown pass " << pass;
  }
  outcome.text = out.str();
  return outcome;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> cases(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# -----", 0) == 0) {
      cases.emplace_back();
    } else {
      cases.back() += line + "\n";
    }
  }
  return cases;
}

class IrCases : public ::testing::TestWithParam<const char*> {};

TEST_P(IrCases, Hold) {
  const std::string path = std::string("tests/ir/") + GetParam() + ".ir";
  std::ifstream file(path);
  ASSERT_TRUE(file) << "no " << path;
  std::stringstream text;
  text << file.rdbuf();
  const std::vector<std::string> pass = words(optionOf(text.str(), "pass"));
  ASSERT_EQ(pass.size(), 1) << path << " names no pass";
  int number = 0;
  for (const std::string& one : split(text.str())) {
    SCOPED_TRACE(path + ", case " + std::to_string(++number));
    try {
      const Outcome outcome = run(pass[0], one);
      if (one.find("# CHECK") != std::string::npos) {
        torch::jit::testing::FileCheck().run(one, outcome.text);
      }
      if (one.find("# unchanged") != std::string::npos) {
        std::unordered_map<std::string, Value*> values;
        EXPECT_FALSE(outcome.changed);
        EXPECT_EQ(parse(one, values)->toString(false), outcome.text);
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, IrCases,
                         ::testing::Values("fold", "functionalize", "prepare", "legality",
                                           "rewrite", "verify", "dump"),
                         [](const auto& file) { return std::string(file.param); });

}  // namespace
}  // namespace remat
