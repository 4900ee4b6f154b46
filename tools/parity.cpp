#include "tools/parity.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace remat::tools {
namespace {

constexpr double kGradientShare = 0.01;  ///< of the largest gradient of all

bool sameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

/// Real doubles: complex numbers as pairs.
at::Tensor asDouble(const at::Tensor& tensor) {
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
  return real.to(at::kDouble);
}

/// The largest finite magnitude; 0 where there is none.
double largest(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  const at::Tensor magnitudes = asDouble(tensor).abs();
  return at::where(magnitudes.isfinite(), magnitudes, 0.0).max().item<double>();
}

/// The largest |a - b|; infinite where one is NaN or infinite and the other isn't the same.
double largestDifference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = asDouble(a);
  const at::Tensor right = asDouble(b);
  const at::Tensor same = left.eq(right).logical_or(left.isnan().logical_and(right.isnan()));
  const at::Tensor difference = at::where(same, 0.0, (left - right).abs());
  const double most = difference.max().item<double>();
  return std::isnan(most) ? INFINITY : most;
}

class Comparison {
 public:
  Comparison(double tolerance, double smallest_scale, Parity& parity)
      : tolerance_(tolerance), smallest_scale_(smallest_scale), parity_(parity) {}

  Match compare(const std::vector<at::Tensor>& original, const std::vector<at::Tensor>& optimized) {
    if (original.size() != optimized.size()) return Match::kDifferent;
    Match match = Match::kBitwise;
    for (size_t i = 0; i < original.size(); ++i) {
      match = std::max(match, compare(original[i], optimized[i]));
    }
    return match;
  }

  Match compare(const at::Tensor& a, const at::Tensor& b) {
    if (!a.defined() && !b.defined()) return Match::kBitwise;
    if (a.defined() != b.defined() || a.scalar_type() != b.scalar_type() ||
        a.sizes() != b.sizes()) {
      return Match::kDifferent;
    }
    if (a.numel() == 0 || sameBits(a, b)) return Match::kBitwise;
    const double difference = largestDifference(a, b);
    const double scale = std::max(largest(a), smallest_scale_);
    parity_.max_difference =
        std::max(parity_.max_difference, scale > 0 ? difference / scale : difference);
    return difference <= tolerance_ * scale ? Match::kClose : Match::kDifferent;
  }

 private:
  double tolerance_;
  double smallest_scale_;
  Parity& parity_;
};

}  // namespace

const char* matchName(Match match) {
  switch (match) {
    case Match::kBitwise:
      return "bitwise";
    case Match::kClose:
      return "close";
    case Match::kDifferent:
      break;
  }
  return "different";
}

Match Parity::worst() const { return std::max({outputs, gradients, buffers, random_state}); }

void compareSteps(const StepOutcome& original, const StepOutcome& optimized, double tolerance,
                  Parity& parity) {
  const at::NoGradGuard no_grad;
  double largest_gradient = 0;
  for (const at::Tensor& gradient : original.gradients) {
    largest_gradient = std::max(largest_gradient, largest(gradient));
  }
  Comparison values(tolerance, /*smallest_scale=*/0, parity);
  Comparison gradients(tolerance, kGradientShare * largest_gradient, parity);
  parity.outputs = std::max(parity.outputs, values.compare(original.outputs, optimized.outputs));
  parity.gradients =
      std::max(parity.gradients, gradients.compare(original.gradients, optimized.gradients));
  parity.buffers = std::max(parity.buffers, values.compare(original.buffers, optimized.buffers));
  parity.random_state =
      std::max(parity.random_state, values.compare(original.next_draw, optimized.next_draw));
}

}  // namespace remat::tools
