#include "ir/remark.h"

#include <array>
#include <cstdio>

namespace remat::ir {

const char* reasonName(Reason reason) {
  switch (reason) {
    case Reason::kInPlaceWrite:
      return "in-place-write";
    case Reason::kRandom:
      return "random";
    case Reason::kSideEffect:
      return "side-effect";
    case Reason::kUnknownOp:
      return "unknown-op";
    case Reason::kDataDependentShape:
      return "data-dependent-shape";
    case Reason::kEscapingAlias:
      return "escaping-alias";
    case Reason::kReadAfterWrite:
      return "read-after-write";
    case Reason::kHiddenWrite:
      return "hidden-write";
    case Reason::kBelowMinimumSaving:
      return "below-minimum-saving";
  }
  return "unknown";
}

std::string str(const Remark& remark) {
  std::string text = "remark: ";
  if (!remark.source.empty()) text += remark.source + ": ";
  if (!remark.module_path.empty()) text += remark.module_path + ": ";
  text += std::string("kept [") + reasonName(remark.reason) + "]: " + remark.explanation;
  if (remark.saved_bytes > 0) text += " (saved " + formatBytes(remark.saved_bytes) + ")";
  return text;
}

std::string formatBytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double amount = static_cast<double>(bytes);
  size_t unit = 0;
  // 999.5 would be printed as 1000 of the smaller unit.
  while ((amount >= 999.5 || amount <= -999.5) && unit + 1 < kUnits.size()) {
    amount /= 1000;
    ++unit;
  }
  const bool decimal = unit > 0 && amount < 99.95 && amount > -99.95;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), decimal ? "%.1f %s" : "%.0f %s", amount, kUnits.at(unit));
  return text.data();
}

}  // namespace remat::ir
