#include "tests/fuzz/generator.h"

#include <random>

#include "tests/fuzz/templates.h"

namespace remat::fuzz {
namespace {

using Statements = std::vector<Statement>;

constexpr int kDepth = 2;  ///< of blocks in blocks

std::string filled(std::string text, const std::string& hole, const std::string& value) {
  const std::string pattern = "{" + hole + "}";
  for (size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, at)) {
    text.replace(at, pattern.size(), value);
    at += value.size();
  }
  return text;
}

class Generator {
 public:
  Generator(uint64_t seed, bool forgetful) : random_(seed), forgetful_(forgetful) {}

  Program run() {
    Program program;
    std::vector<std::string> values = {"x"};
    if (chance(0.8)) assign(program.statements, values, "torch.linear(x, self.w0, self.bias)", "x");
    addBlock(program.statements, values, /*depth=*/0, number(6, 22));
    program.outputs.push_back(values.back());
    for (int64_t i = number(0, 3); i > 1; --i) program.outputs.push_back(pick(values));
    program.form = static_cast<Program::Form>(number(0, 3));
    constexpr double kViewOfOutput = 0.2;
    if (chance(kViewOfOutput)) {
      program.outputs.front() = filled(choose(views()), "v", program.outputs.front());
    }
    return program;
  }

 private:
  bool chance(double probability) {
    return static_cast<double>(random_() % 1000000) < probability * 1000000;
  }
  /// `low` … `high` - 1.
  int64_t number(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low));
  }
  template <typename T>
  const T& choose(const std::vector<T>& from) {
    return from[number(0, static_cast<int64_t>(from.size()))];
  }
  /// Mostly one of the last: chains are what can be recomputed.
  const std::string& pick(const std::vector<std::string>& values) {
    constexpr size_t kLast = 4;
    if (values.size() > kLast && chance(0.75)) {
      return values[values.size() - 1 - number(0, kLast)];
    }
    return choose(values);
  }
  std::string newName() { return "v" + std::to_string(++count_); }

  void assign(Statements& out, std::vector<std::string>& values, const std::string& text,
              const std::string& fallback) {
    Statement statement;
    statement.target = newName();
    statement.text = text;
    statement.fallback = fallback;
    values.push_back(statement.target);
    out.push_back(std::move(statement));
  }
  static void effect(Statements& out, const std::string& text) {
    Statement statement;
    statement.kind = Statement::Kind::kEffect;
    statement.text = text;
    out.push_back(std::move(statement));
  }

  void addBlock(Statements& out, std::vector<std::string>& values, int depth, int64_t statements) {
    for (int64_t i = 0; i < statements; ++i) add(out, values, depth);
  }

  void add(Statements& out, std::vector<std::string>& values, int depth) {
    const std::string a = pick(values);
    const std::string b = pick(values);
    const int64_t kind = number(0, 100);
    if (kind < 48) {
      const bool forget = forgetful_ && chance(0.1);
      const std::string text = forget ? "remat_fuzz.forgetful({a})" : choose(unaryExpressions());
      assign(out, values, filled(text, "a", a), a);
    } else if (kind < 68) {
      assign(out, values, filled(filled(choose(binaryExpressions()), "a", a), "b", b), a);
    } else if (kind < 82) {
      addWritten(out, values, a, b);
    } else if (kind < 87 && depth < kDepth) {
      addIf(out, values, a, b, depth);
    } else if (kind < 90 && depth < kDepth) {
      addFor(out, values, a, depth);
    } else if (kind < 94) {
      addList(out, values, a, b);
    } else if (kind < 97 && depth < kDepth) {
      addNoGrad(out, values, a);
    } else {
      effect(out, filled(choose(stateWrites()), "a", a));
    }
  }

  /// A value of its own bytes, views of it, and writes through one or the other.
  void addWritten(Statements& out, std::vector<std::string>& values, const std::string& a,
                  const std::string& b) {
    assign(out, values, filled(choose(freshExpressions()), "a", a), a);
    const std::string v = values.back();
    std::string view;
    if (chance(0.4)) {
      std::vector<std::string> aside;
      assign(out, aside, filled(choose(views()), "v", v), v);
      view = aside.back();
      if (chance(0.5)) assign(out, values, "(" + view + " * 2.0).sum() + " + v, v);
    }
    for (int64_t i = number(1, 3); i > 0; --i) {
      effect(out, filled(filled(choose(writes()), "v", v), "b", b));
    }
    if (!view.empty() && chance(0.5)) assign(out, values, v + " + " + view + ".sum() * 0.01", v);
    values.push_back(v);
  }

  void addIf(Statements& out, std::vector<std::string>& values, const std::string& a,
             const std::string& b, int depth) {
    Statement statement;
    statement.kind = Statement::Kind::kIf;
    statement.text = filled(filled(choose(conditions()), "a", a), "b", b);
    statement.fallback = a;
    const auto fill = [&](Statements& block, std::string& result) {
      std::vector<std::string> inner = values;
      addBlock(block, inner, depth + 1, number(1, 4));
      result = inner.back();
    };
    fill(statement.body, statement.result);
    fill(statement.orelse, statement.other);
    statement.target = newName();
    values.push_back(statement.target);
    out.push_back(std::move(statement));
  }

  void addFor(Statements& out, std::vector<std::string>& values, const std::string& a, int depth) {
    Statement statement;
    statement.kind = Statement::Kind::kFor;
    statement.target = newName();
    statement.text = std::to_string(number(1, 4));
    statement.fallback = a;
    std::vector<std::string> inner = values;
    inner.push_back(statement.target);
    addBlock(statement.body, inner, depth + 1, number(1, 3));
    statement.result = inner.back();
    values.push_back(statement.target);
    out.push_back(std::move(statement));
  }

  void addList(Statements& out, std::vector<std::string>& values, const std::string& a,
               const std::string& b) {
    std::vector<std::string> lists;
    assign(out, lists, "[" + a + ", " + b + "]", "[" + a + ", " + a + "]");
    const std::string l = lists.back();
    if (chance(0.6)) effect(out, l + ".append(" + pick(values) + ")");
    if (chance(0.4)) effect(out, l + "[0] = torch.sin(" + l + "[1])");
    if (chance(0.2)) effect(out, l + "[1].mul_(0.5)");
    assign(out, values, filled(choose(listExpressions()), "l", l), a);
  }

  void addNoGrad(Statements& out, std::vector<std::string>& values, const std::string& a) {
    Statement statement;
    statement.kind = Statement::Kind::kNoGrad;
    std::vector<std::string> inner = {a};
    assign(statement.body, inner, filled(choose(unaryExpressions()), "a", a), a);
    if (chance(0.4)) effect(statement.body, filled(choose(stateWrites()), "a", a));
    out.push_back(std::move(statement));
    assign(out, values, inner.back() + " + " + a, a);
  }

  std::mt19937_64 random_;
  bool forgetful_;
  int count_ = 0;
};

}  // namespace

Program randomProgram(uint64_t seed, bool forgetful) { return Generator(seed, forgetful).run(); }

}  // namespace remat::fuzz
