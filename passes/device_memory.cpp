#include "passes/device_memory.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/device_statistics.h"
#include "runtime/memory_statistics.h"

namespace remat {

PeakGauge::PeakGauge(c10::Device device) : device_(device) {
  if (device.is_cpu()) {
    runtime::installMemoryStatistics();
    runtime::resetPeak();
    baseline_ = runtime::liveBytes();
    return;
  }
  synchronize(device);
  runtime::resetDevicePeaks(device);
  baseline_ = runtime::deviceStatistics(device).allocated;
}

int64_t PeakGauge::bytes() const {
  if (device_.is_cpu()) return runtime::peakBytes() - baseline_;
  return runtime::deviceStatistics(device_).allocated_peak - baseline_;
}

namespace {

/// Trains what calls cuDNN and cuBLAS, and returns what they keep of the allocator's memory.
int64_t takeWorkspaces(c10::Device device) {
  const int64_t before = runtime::deviceStatistics(device).allocated;
  {
    const at::AutoGradMode with_gradients(true);
    const auto options = at::TensorOptions().device(device);
    const at::Tensor image = at::ones({2, 8, 16, 16}, options).set_requires_grad(true);
    const at::Tensor kernel = at::ones({8, 8, 3, 3}, options).set_requires_grad(true);
    const at::Tensor weight = at::ones({64, 256}, options).set_requires_grad(true);
    const at::Tensor bias = at::ones({64}, options).set_requires_grad(true);
    const at::Tensor rows = at::conv2d(image, kernel, {}, 1, 1).flatten(0, 1).flatten(1);
    torch::autograd::grad({at::linear(rows, weight, bias).sum()}, {image, kernel, weight, bias});
  }
  synchronize(device);
  return runtime::deviceStatistics(device).allocated - before;
}

}  // namespace

DeviceMemory deviceMemory(c10::Device device) {
  const int64_t workspaces = device.is_cuda() ? takeWorkspaces(device) : 0;
  const runtime::DeviceCapacity capacity = runtime::deviceCapacity(device);
  return {capacity.total, capacity.free, runtime::deviceStatistics(device).reserved, workspaces};
}

void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type())
      .synchronizeDevice(device.has_index() ? device.index() : 0);
}

}  // namespace remat
