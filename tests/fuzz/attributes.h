#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace remat::fuzz {

/// Every value of a random program is [kRows, kColumns], so that any two fit each other.
constexpr int64_t kRows = 32;
constexpr int64_t kColumns = 16;

/// Names of the attributes that a program may read, as `w0` (a parameter) or `mean` (a buffer).
std::vector<std::string> attributeNames();

/// A module, in training mode, with those attributes whose names `text` mentions as `self.NAME` or
/// `name="NAME"`. The same `seed` gives the same bytes, whatever else is mentioned.
torch::jit::Module moduleFor(const std::string& text, uint64_t seed);

}  // namespace remat::fuzz
