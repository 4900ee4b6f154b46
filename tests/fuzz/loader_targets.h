#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/loader_mutator.h"

namespace remat::fuzz {

/// What the tool reads, sound: the mutations start from it.
struct Samples {
  std::string plain;      ///< a saved model
  std::string optimized;  ///< the same, optimised
  std::string inputs;     ///< of `torch.save`
  std::string profile;    ///< JSON, of the model
  std::string plan;       ///< JSON, for the profile
};
Samples makeSamples();

/// What became of one damaged text.
struct Outcome {
  bool accepted = false;
  std::string refusal;  ///< if not accepted: what the user is told
  std::string defect;   ///< empty, or what is wrong with that: a defect of ours
};

/// One thing that the tool reads, and what it does with it.
struct Target {
  const char* name;
  std::string (*damaged)(const Samples& samples, Mutator& mutator);
  /// `folder` is for files of its own.
  Outcome (*read)(const std::string& text, const Samples& samples, const std::string& folder);
};
const std::vector<Target>& targets();

}  // namespace remat::fuzz
