#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::fuzz {

/// One statement of a random program. Names of values (`v12`) are unique in the program.
struct Statement {
  enum class Kind : uint8_t {
    kAssign,  ///< `target = text`
    kEffect,  ///< `text`: writes something in place
    kIf,      ///< `if text:` body, `target = result`; else: orelse, `target = other`
    kFor,     ///< `target = fallback`; `for … in range(text):` body, `target = … result`
    kNoGrad,  ///< `with self.no_grad:` body
  };
  Kind kind = Kind::kAssign;
  std::string target;    ///< empty: defines nothing
  std::string text;      ///< TorchScript, without its `target =`
  std::string fallback;  ///< a value that may stand for the target
  std::vector<Statement> body;
  std::vector<Statement> orelse;
  std::string result;  ///< of `body`
  std::string other;   ///< of `orelse`
};

struct Program {
  enum class Form : uint8_t { kTuple, kList, kDict };
  std::vector<Statement> statements;
  std::vector<std::string> outputs;  ///< TorchScript expressions over values
  Form form = Form::kTuple;
};

/// The method `forward(self, x)`.
std::string sourceOf(const Program& program);

/// Statements, those in blocks included.
size_t sizeOf(const std::vector<Statement>& statements);

/// Replaces the value `name` by `by` in the statements.
void rename(std::vector<Statement>& statements, const std::string& name, const std::string& by);
/// The same in one text.
std::string renamed(const std::string& text, const std::string& name, const std::string& by);

}  // namespace remat::fuzz
