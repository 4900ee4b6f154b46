#include "tests/fuzz/program.h"

#include <regex>

namespace remat::fuzz {
namespace {

void write(const std::vector<Statement>& statements, const std::string& indent, std::string& out);

void writeLine(const std::string& indent, const std::string& line, std::string& out) {
  out += indent + line + "\n";
}

void write(const Statement& statement, const std::string& indent, std::string& out) {
  const std::string inner = indent + "    ";
  const auto set = [&](const std::string& value) { return statement.target + " = " + value; };
  switch (statement.kind) {
    case Statement::Kind::kAssign:
      writeLine(indent, set(statement.text), out);
      break;
    case Statement::Kind::kEffect:
      writeLine(indent, statement.text, out);
      break;
    case Statement::Kind::kIf:
      writeLine(indent, "if " + statement.text + ":", out);
      write(statement.body, inner, out);
      writeLine(inner, set(statement.result), out);
      writeLine(indent, "else:", out);
      write(statement.orelse, inner, out);
      writeLine(inner, set(statement.other), out);
      break;
    case Statement::Kind::kFor:
      writeLine(indent, set(statement.fallback), out);
      writeLine(indent, "for i_" + statement.target + " in range(" + statement.text + "):", out);
      write(statement.body, inner, out);
      writeLine(inner, set(statement.target + " * 0.5 + " + statement.result), out);
      break;
    case Statement::Kind::kNoGrad:
      writeLine(indent, "with self.no_grad:", out);
      write(statement.body, inner, out);
      if (statement.body.empty()) writeLine(inner, "pass", out);
      break;
  }
}

void write(const std::vector<Statement>& statements, const std::string& indent, std::string& out) {
  for (const Statement& statement : statements) write(statement, indent, out);
}

const char* typeOf(Program::Form form, size_t outputs) {
  switch (form) {
    case Program::Form::kList:
      return "List[Tensor]";
    case Program::Form::kDict:
      return "Dict[str, Tensor]";
    case Program::Form::kTuple:
      break;
  }
  return outputs == 1 ? "Tensor" : "";
}

std::string valueOf(const Program& program) {
  std::string list;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    list += i == 0 ? "" : ", ";
    if (program.form == Program::Form::kDict) list += "\"k" + std::to_string(i) + "\": ";
    list += program.outputs[i];
  }
  if (program.form == Program::Form::kList) return "[" + list + "]";
  return program.form == Program::Form::kDict ? "{" + list + "}" : list;
}

}  // namespace

std::string sourceOf(const Program& program) {
  const std::string type = typeOf(program.form, program.outputs.size());
  std::string out = "def forward(self, x: Tensor)" + (type.empty() ? "" : " -> " + type) + ":\n";
  write(program.statements, "    ", out);
  return out + "    return " + valueOf(program) + "\n";
}

size_t sizeOf(const std::vector<Statement>& statements) {
  size_t size = statements.size();
  for (const Statement& statement : statements) {
    size += sizeOf(statement.body) + sizeOf(statement.orelse);
  }
  return size;
}

std::string renamed(const std::string& text, const std::string& name, const std::string& by) {
  if (text.find(name) == std::string::npos) return text;
  return std::regex_replace(text, std::regex("\\b" + name + "\\b"), by);
}

void rename(std::vector<Statement>& statements, const std::string& name, const std::string& by) {
  for (Statement& statement : statements) {
    for (std::string* text : {&statement.target, &statement.text, &statement.fallback,
                              &statement.result, &statement.other}) {
      *text = renamed(*text, name, by);
    }
    rename(statement.body, name, by);
    rename(statement.orelse, name, by);
  }
}

}  // namespace remat::fuzz
