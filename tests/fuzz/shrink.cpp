#include "tests/fuzz/shrink.h"

#include <optional>
#include <utility>

namespace remat::fuzz {
namespace {

using Statements = std::vector<Statement>;

void renameAll(Program& program, const std::string& name, const std::string& by) {
  if (name.empty() || name == by) return;
  rename(program.statements, name, by);
  for (std::string& output : program.outputs) output = renamed(output, name, by);
}

/// What stands in place of a statement.
enum class Change : uint8_t { kRemove, kBody, kOrelse, kCount };

/// A block's statements and its result where the block statement stood.
void unwrap(Program& program, Statements& list, size_t at, bool orelse) {
  Statement block = std::move(list[at]);
  Statements inner = std::move(orelse ? block.orelse : block.body);
  const std::string result = orelse ? block.other : block.result;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(at),
              std::make_move_iterator(inner.begin()), std::make_move_iterator(inner.end()));
  // A loop's body reads the loop's own value: the one before the loop stands for it.
  if (block.kind == Statement::Kind::kFor) {
    renameAll(program, block.target, result == block.target ? block.fallback : result);
  } else if (block.kind == Statement::Kind::kIf) {
    renameAll(program, block.target, result);
  }
}

/// Applies `change` to statement number `number` in the order of the text. False: there is no such
/// statement, or the change doesn't fit it.
bool apply(Program& program, Statements& list, size_t& number, Change change, bool& found) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (number == 0) {
      found = true;
      const Statement& statement = list[i];
      const bool block = statement.kind == Statement::Kind::kIf ||
                         statement.kind == Statement::Kind::kFor ||
                         statement.kind == Statement::Kind::kNoGrad;
      if (change == Change::kBody && block) {
        unwrap(program, list, i, /*orelse=*/false);
        return true;
      }
      if (change == Change::kOrelse && statement.kind == Statement::Kind::kIf) {
        unwrap(program, list, i, /*orelse=*/true);
        return true;
      }
      if (change != Change::kRemove) return false;
      const std::string target = statement.target;
      const std::string fallback = statement.fallback;
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      renameAll(program, target, fallback);
      return true;
    }
    --number;
    for (Statements* inner : {&list[i].body, &list[i].orelse}) {
      const bool changed = apply(program, *inner, number, change, found);
      if (found) return changed;
    }
  }
  return false;
}

std::optional<Program> changed(const Program& program, size_t number, Change change) {
  Program result = program;
  bool found = false;
  if (!apply(result, result.statements, number, change, found)) return std::nullopt;
  return result;
}

std::optional<Program> withoutOutput(const Program& program, size_t number) {
  if (program.outputs.size() < 2 || number >= program.outputs.size()) return std::nullopt;
  Program result = program;
  result.outputs.erase(result.outputs.begin() + static_cast<std::ptrdiff_t>(number));
  return result;
}

}  // namespace

Program shrink(Program program, const std::function<bool(const Program&)>& fails, int attempts) {
  const auto keepIfFailing = [&](std::optional<Program> candidate) {
    if (!candidate || attempts <= 0) return false;
    --attempts;
    if (!fails(*candidate)) return false;
    program = std::move(*candidate);
    return true;
  };
  for (bool smaller = true; smaller && attempts > 0;) {
    smaller = false;
    for (size_t i = program.outputs.size(); i-- > 0;) {
      smaller |= keepIfFailing(withoutOutput(program, i));
    }
    // From the end: later statements hold on to earlier ones.
    for (size_t i = sizeOf(program.statements); i-- > 0;) {
      for (const Change change : {Change::kRemove, Change::kBody, Change::kOrelse}) {
        smaller |= keepIfFailing(changed(program, i, change));
      }
    }
  }
  return program;
}

}  // namespace remat::fuzz
