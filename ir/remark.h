#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::ir {

/// Why a node is kept although recomputing it might save memory.
enum class Reason : uint8_t {
  kInPlaceWrite,
  kRandom,
  kSideEffect,
  kUnknownOp,
  kDataDependentShape,
  kEscapingAlias,
  kReadAfterWrite,
  kHiddenWrite,
  kBelowMinimumSaving,
};

/// The name between brackets: `in-place-write`.
const char* reasonName(Reason reason);

/// What a user can do: `use nn.Dropout, whose mask is replayed, or …`.
const char* remedyFor(Reason reason);

/// One reason why one node is kept. `str` gives
/// `remark: model.py:41: layer2.0.relu: kept [in-place-write]: aten::relu_ writes its input
/// (saved 3.2 MB)`.
struct Remark {
  Reason reason;
  std::string op;           ///< `aten::relu_`
  std::string module_path;  ///< may be empty
  std::string source;       ///< `model.py:41`; may be empty
  std::string explanation;  ///< `aten::relu_ writes its input`
  int64_t saved_bytes = 0;  ///< what the node's saved storages hold; 0: unknown or nothing
};

std::string str(const Remark& remark);

/// The path as `str` and errors show it: `layer2.0.relu`, and `module 0.4` where a number, as
/// nn.Sequential gives them, would stand bare.
std::string modulePathText(const std::string& path);

enum class Rounding : uint8_t { kNearest, kUp, kDown };

/// `3.2 MB`, `1.41 GB`; powers of ten, one decimal below 100, and two of GB and TB below 10.
std::string formatBytes(int64_t bytes, Rounding rounding = Rounding::kNearest);

}  // namespace remat::ir
