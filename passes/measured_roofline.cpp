#include "passes/measured_roofline.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "passes/device_memory.h"
#include "runtime/step_clock.h"

namespace remat {
namespace {

constexpr int kRuns = 9;

template <typename Work>
double medianSeconds(c10::Device device, const Work& work) {
  work();
  runtime::StepClock clock(device);
  std::vector<std::pair<int32_t, int32_t>> instants;
  for (int i = 0; i < kRuns; ++i) {
    const int32_t begin = clock.now();
    work();
    instants.emplace_back(begin, clock.now());
  }
  synchronize(device);
  std::vector<double> seconds;
  seconds.reserve(instants.size());
  for (const auto& [begin, end] : instants) seconds.push_back(clock.seconds(begin, end));
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

}  // namespace

ir::Roofline measureRoofline(c10::Device device, c10::ScalarType dtype, int64_t edge,
                             int64_t buffer) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  ir::Roofline roofline;
  {
    // Zeros would be multiplied faster than numbers are.
    const at::Tensor left = at::full({edge, edge}, 0.5, options).normal_();
    const at::Tensor right = left.t().contiguous();
    at::Tensor product = at::empty({edge, edge}, options);
    const double seconds = medianSeconds(device, [&] { at::mm_out(product, left, right); });
    const auto size = static_cast<double>(edge);
    roofline.flops = 2 * size * size * size / seconds;
  }
  const at::Tensor from = at::ones({buffer}, options.dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  const double seconds = medianSeconds(device, [&] { to.copy_(from); });
  roofline.bytes = 2 * static_cast<double>(buffer) / seconds;
  return roofline;
}

}  // namespace remat
