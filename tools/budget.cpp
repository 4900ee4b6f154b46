#include "tools/budget.h"

#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSwitch.h"

namespace remat::tools {
namespace {

/// Of an optimiser, for each parameter element: no optimiser has more, and sums stay in range.
constexpr double kMostStateBytes = 1e6;

std::string quoted(llvm::StringRef text) { return "'" + text.str() + "'"; }

/// The number at the start of `text`, which is advanced behind it: digits and one point, no sign.
std::optional<double> takeNumber(llvm::StringRef& text) {
  const llvm::StringRef number =
      text.take_while([](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  double value = 0;
  if (number.empty() || number.getAsDouble(value)) return std::nullopt;
  text = text.drop_front(number.size());
  return value;
}

double unitBytes(llvm::StringRef unit) {
  return llvm::StringSwitch<double>(unit)
      .CaseLower("b", 1)
      .CaseLower("kb", 1e3)
      .CaseLower("mb", 1e6)
      .CaseLower("gb", 1e9)
      .CaseLower("tb", 1e12)
      .CaseLower("kib", 1024.0)
      .CaseLower("mib", 1024.0 * 1024)
      .CaseLower("gib", 1024.0 * 1024 * 1024)
      .CaseLower("tib", 1024.0 * 1024 * 1024 * 1024)
      .Default(0);
}

}  // namespace

int64_t parseBytes(const std::string& text) {
  llvm::StringRef rest = llvm::StringRef(text).trim();
  const std::optional<double> number = takeNumber(rest);
  if (!number)
    throw std::invalid_argument(quoted(text) + " starts with no number; say 900MB or 2GiB");
  const llvm::StringRef unit = rest.trim();
  if (unit.empty()) {
    throw std::invalid_argument(quoted(text) + " has no unit; say " + text + "B for bytes, " +
                                text + "MB or " + text + "GiB");
  }
  const double factor = unitBytes(unit);
  if (factor == 0) {
    throw std::invalid_argument(quoted(unit) +
                                " is no unit; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB");
  }
  const double bytes = std::floor(*number * factor);
  if (!(bytes < static_cast<double>(std::numeric_limits<int64_t>::max()))) {
    throw std::invalid_argument(quoted(text) + " is too large");
  }
  return static_cast<int64_t>(bytes);
}

double parsePercentage(const std::string& text) {
  llvm::StringRef rest = llvm::StringRef(text).trim();
  const std::optional<double> number = takeNumber(rest);
  if (!number || rest.trim() != "%" || !std::isfinite(*number)) {
    throw std::invalid_argument(quoted(text) + " is no percentage; say 20%");
  }
  return *number / 100;
}

ir::Roofline parseRoofline(const std::string& text) {
  const auto [left, right] = llvm::StringRef(text).split(',');
  const auto rate = [&](llvm::StringRef part) {
    llvm::StringRef digits = part.trim();
    double factor = 1;
    if (!digits.empty()) {
      factor = llvm::StringSwitch<double>(digits.take_back(1))
                   .Case("k", 1e3)
                   .Case("M", 1e6)
                   .Case("G", 1e9)
                   .Case("T", 1e12)
                   .Case("P", 1e15)
                   .Default(1);
      if (factor > 1) digits = digits.drop_back();
    }
    constexpr double kMost = 1e24;
    double value = 0;
    if (digits.trim().getAsDouble(value) || !(value > 0 && value * factor <= kMost)) {
      throw std::invalid_argument(quoted(text) +
                                  " is no roofline; say operations and bytes per second, as "
                                  "67T,4.8T");
    }
    return value * factor;
  };
  return {rate(left), rate(right)};
}

MemorySize parseMemorySize(const std::string& text) {
  MemorySize size;
  if (llvm::StringRef(text).trim().endswith("%")) {
    size.share = parsePercentage(text);
    if (size.share <= 0 || size.share > 1) {
      throw std::invalid_argument(quoted(text) + " is not between 0% and 100%");
    }
    return size;
  }
  size.bytes = parseBytes(text);
  if (size.bytes == 0) throw std::invalid_argument(quoted(text) + " is no memory at all");
  return size;
}

Budget parseBudget(const std::string& text) {
  const llvm::StringRef trimmed = llvm::StringRef(text).trim();
  Budget budget;
  if (trimmed == "min") {
    budget.kind = Budget::Kind::kMinimum;
    return budget;
  }
  llvm::StringRef rest = trimmed;
  const std::optional<double> number = takeNumber(rest);
  if (!number) {
    throw std::invalid_argument(quoted(text) + " is no budget; say 50%, 900MB, 2GiB or min");
  }
  if (rest.trim() == "%") {
    budget.fraction = parsePercentage(text);
    if (budget.fraction <= 0 || budget.fraction > 1) {
      throw std::invalid_argument(quoted(text) + " is not between 0% and 100%");
    }
    return budget;
  }
  if (rest.empty()) {
    throw std::invalid_argument(quoted(text) + " has no unit; say " + text + "%, " + text +
                                "MB, or " + text + "B for bytes");
  }
  if (unitBytes(rest.trim()) == 0) {
    throw std::invalid_argument(quoted(rest.trim()) +
                                " is no unit; use %, B, kB, MB, GB, TB, KiB, MiB, GiB or TiB");
  }
  budget.kind = Budget::Kind::kBytes;
  budget.bytes = parseBytes(text);
  if (budget.bytes == 0) throw std::invalid_argument(quoted(text) + " is no memory at all");
  return budget;
}

double optimizerBytesPerElement(const std::string& text, int64_t element_size) {
  const double copies = llvm::StringSwitch<double>(text)
                            .Case("sgd", 0)
                            .Case("momentum", 1)
                            .Case("adam", 2)
                            .Default(-1);
  if (copies >= 0) return copies * static_cast<double>(element_size);
  llvm::StringRef rest = llvm::StringRef(text).trim();
  const std::optional<double> number = takeNumber(rest);
  if (!number || !rest.empty()) {
    throw std::invalid_argument(quoted(text) +
                                " is no optimizer; say sgd, momentum, adam or bytes per parameter");
  }
  if (!(*number <= kMostStateBytes)) throw std::invalid_argument(quoted(text) + " is too large");
  return *number;
}

}  // namespace remat::tools
