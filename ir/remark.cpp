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

const char* remedyFor(Reason reason) {
  switch (reason) {
    case Reason::kInPlaceWrite:
      return "use the form without _, or inplace=False";
    case Reason::kHiddenWrite:
      return "build lists and dicts outside of the model's costly parts";
    case Reason::kReadAfterWrite:
      return "write to a copy";
    case Reason::kRandom:
      return "use nn.Dropout, whose mask is replayed, or set the inner dropout to 0";
    case Reason::kSideEffect:
      return "move it out of forward";
    case Reason::kUnknownOp:
      return "allow-op; unroll the loop (tracing, or a loop over a ModuleList)";
    case Reason::kDataDependentShape:
      return "multiply by a mask instead";
    case Reason::kEscapingAlias:
      return "return a clone()";
    case Reason::kBelowMinimumSaving:
      return "nothing";
  }
  return "";
}

std::string modulePathText(const std::string& path) {
  const bool bare = path.find_first_not_of("0123456789.") == std::string::npos;
  return bare && !path.empty() ? "module " + path : path;
}

std::string str(const Remark& remark) {
  std::string text = "remark: ";
  if (!remark.source.empty()) text += remark.source + ": ";
  if (!remark.module_path.empty()) text += modulePathText(remark.module_path) + ": ";
  text += std::string("kept [") + reasonName(remark.reason) + "]: " + remark.explanation;
  if (remark.saved_bytes > 0) text += " (saved " + formatBytes(remark.saved_bytes) + ")";
  return text;
}

std::string formatBytes(int64_t bytes, Rounding rounding) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  const bool negative = bytes < 0;
  const int64_t amount = negative ? -bytes : bytes;
  int64_t size = 1;  // bytes of a unit
  for (size_t unit = 0;; ++unit, size *= 1000) {
    // The most decimals that leave three digits, or two of kB and MB.
    for (int decimals = unit == 0 ? 0 : unit < 3 ? 1 : 2; decimals >= 0; --decimals) {
      const int64_t scale = decimals == 2 ? 100 : decimals == 1 ? 10 : 1;
      const int64_t step = size / scale;
      const int64_t more = rounding == Rounding::kNearest            ? step / 2
                           : (rounding == Rounding::kUp) != negative ? step - 1
                                                                     : 0;
      const int64_t steps = amount / step + (amount % step + more) / step;
      if (steps >= 1000 && (decimals > 0 || unit + 1 < kUnits.size())) continue;
      std::array<char, 48> text{};
      std::snprintf(text.data(), text.size(), "%s%.*f %s", negative ? "-" : "", decimals,
                    static_cast<double>(steps) / static_cast<double>(scale), kUnits.at(unit));
      return text.data();
    }
  }
}

}  // namespace remat::ir
