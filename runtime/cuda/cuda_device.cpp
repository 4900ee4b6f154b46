// CUDA's generators and captures, through LibTorch's CUDA library.

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/Sleep.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "runtime/device.h"

namespace remat::runtime {
namespace {

/// One number in the device's memory, which a generator of LibTorch's owns.
at::TensorBase numberAt(int64_t* address, c10::Device device) {
  // The target device saves asking the driver where the pointer points.
  return at::for_blob(address, {1})
      .options(at::TensorOptions().device(device).dtype(at::kLong))
      .target_device(device)
      .make_tensor();
}

class CudaDevice final : public DeviceInterface {
 public:
  uint64_t currentCapture(c10::Device device) const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device.index());
    C10_CUDA_CHECK(cudaStreamGetCaptureInfo(stream, &status, &id));
    TORCH_CHECK(status != cudaStreamCaptureStatusInvalidated,
                "remat: the capture of a graph on this stream has failed already; its first error "
                "says why");
    return status == cudaStreamCaptureStatusNone ? 0 : id;
  }

  void occupy(c10::Device device, double seconds) const override {
    const c10::DeviceGuard guard(device);
    int kilohertz = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device.index()));
    constexpr double kHertz = 1e3;
    at::cuda::sleep(static_cast<int64_t>(seconds * kHertz * kilohertz));
  }

  GeneratorPosition position(const at::Generator& generator) const override {
    const c10::Device device = generator.device();
    const at::PhiloxCudaState state = take(generator, 0);
    GeneratorPosition position;
    position.capture = currentCapture(device);
    TORCH_INTERNAL_ASSERT((position.capture != 0) == state.captured_);
    if (state.captured_) {
      position.offset = state.offset_intragraph_;
      position.seed_at = state.seed_.ptr;
      position.first_offset_at = state.offset_.ptr;
    } else {
      position.seed = state.seed_.val;
      position.offset = state.offset_.val;
    }
    return position;
  }

  /// In a capture LibTorch's way is to register a generator with the graph before the capture
  /// begins. One that is needed in the midst of it borrows from the default generator, which is
  /// registered, what registering gives: the place of its seed and first offset on the device.
  at::Generator generatorAt(c10::Device device, const GeneratorPosition& position) const override {
    auto state = c10::make_intrusive<at::CUDAGeneratorState>();
    if (position.capture == 0) {
      state->seed_ = position.seed;
      state->philox_offset_per_thread_ = position.offset;
    } else {
      state->capturing_ = true;
      state->offset_intragraph_ = position.offset;
      state->seed_extragraph_ = numberAt(position.seed_at, device);
      state->offset_extragraph_ = numberAt(position.first_offset_at, device);
    }
    auto generator = at::make_generator<at::CUDAGeneratorImpl>(device.index(), std::move(state));
    // Two generators of one position draw the same: better an error than another mask.
    TORCH_INTERNAL_ASSERT(this->position(generator) == position,
                          "a CUDA generator is not where it was put");
    return generator;
  }

  /// Not by set_offset, which would have cuDNN's LSTM draw the seed of its dropout anew.
  void advance(at::Generator& generator, uint64_t numbers) const override {
    take(generator, numbers);
  }

 private:
  /// What a kernel that draws `numbers` a thread is given.
  static at::PhiloxCudaState take(const at::Generator& generator, uint64_t numbers) {
    // LibTorch looks at the current device's stream for a capture.
    const c10::DeviceGuard guard(generator.device());
    return at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(numbers);
  }
};

[[maybe_unused]] const bool g_registered = [] {
  static const CudaDevice device;
  registerDevice(c10::kCUDA, &device);
  return true;
}();

}  // namespace
}  // namespace remat::runtime
