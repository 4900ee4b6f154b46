#include "tools/comparing_options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "llvm/Support/FormatVariadic.h"
#include "tools/errors.h"

namespace remat::tools {

void addComparingOptions(CLI::App& verb, ComparingOptions& options, const std::string& needs) {
  auto* steps = verb.add_option("--steps", options.steps, "Training steps that are compared")
                    ->check(CLI::Range(1, 1000))
                    ->capture_default_str();
  auto* tolerance =
      verb.add_option("--tolerance", options.tolerance,
                      "Differences up to this share of a tensor's largest value are none, as 1e-5. "
                      "Without it results must have the same bits, unless the original's own "
                      "kernels are not deterministic")
          ->type_name("SHARE");
  if (needs.empty()) return;
  steps->needs(needs);
  tolerance->needs(needs);
}

Comparing comparingOptions(const ComparingOptions& options) {
  Comparing comparing;
  comparing.steps = options.steps;
  if (options.tolerance.empty()) return comparing;
  char* end = nullptr;
  const double tolerance = std::strtod(options.tolerance.c_str(), &end);
  if (*end != '\0' || !std::isfinite(tolerance) || tolerance < 0) {
    throw usage("--tolerance '" + options.tolerance + "' is no share; say 1e-5");
  }
  comparing.tolerance = tolerance;
  return comparing;
}

void noteDeterminism(const Verdict& verdict) {
  if (verdict.deterministic) return;
  std::fprintf(
      stderr,
      "note: the original's own kernels are not deterministic here: run again, it gave "
      "other bits. Results are compared within a tolerance; --deterministic asks for kernels "
      "that are\n");
}

std::string differenceText(const Verdict& verdict, const std::string& advice) {
  const std::string first =
      verdict.first_difference.empty() ? "" : ", first in " + verdict.first_difference;
  if (verdict.own_difference == 0) return first + advice;
  return llvm::formatv(
             "{0}; but the original differs from itself, too, when it is run again, by up "
             "to {1:e1}, so this says nothing of the rewriting: make its kernels "
             "deterministic, or say --tolerance",
             first, verdict.own_difference)
      .str();
}

}  // namespace remat::tools
