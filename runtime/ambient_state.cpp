#include "runtime/ambient_state.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>

namespace remat::runtime {
namespace {

/// Per backend and operation, as kernels ask for it. The older float32MatmulPrecision and
/// allowTF32CuDNN throw where a program uses the newer settings, and miss some of these.
struct PrecisionSetting {
  at::Float32Backend backend;
  at::Float32Op op;
};
constexpr std::array<PrecisionSetting, 6> kPrecisions = {{
    {at::Float32Backend::CUDA, at::Float32Op::MATMUL},
    {at::Float32Backend::CUDA, at::Float32Op::CONV},
    {at::Float32Backend::CUDA, at::Float32Op::RNN},
    {at::Float32Backend::MKLDNN, at::Float32Op::MATMUL},
    {at::Float32Backend::MKLDNN, at::Float32Op::CONV},
    {at::Float32Backend::MKLDNN, at::Float32Op::RNN},
}};

/// Switches that choose between kernels which round differently.
struct Switch {
  bool (at::Context::*get)() const;
  void (at::Context::*set)(bool);
};
constexpr std::array<Switch, 13> kSwitches = {{
    {&at::Context::userEnabledMkldnn, &at::Context::setUserEnabledMkldnn},
    {&at::Context::deterministicMkldnn, &at::Context::setDeterministicMkldnn},
    {&at::Context::deterministicCuDNN, &at::Context::setDeterministicCuDNN},
    {&at::Context::benchmarkCuDNN, &at::Context::setBenchmarkCuDNN},
    {&at::Context::allowFP16AccumulationCuBLAS, &at::Context::setAllowFP16AccumulationCuBLAS},
    {&at::Context::userEnabledCuDNN, &at::Context::setUserEnabledCuDNN},
    {&at::Context::allowFP16BF16ReductionMathSDP, &at::Context::setAllowFP16BF16ReductionMathSDP},
    {&at::Context::userEnabledFA3SDP, &at::Context::setSDPUseFA3},
    {&at::Context::userEnabledFlashSDP, &at::Context::setSDPUseFlash},
    {&at::Context::userEnabledMemEfficientSDP, &at::Context::setSDPUseMemEfficient},
    {&at::Context::userEnabledMathSDP, &at::Context::setSDPUseMath},
    {&at::Context::userEnabledCuDNNSDP, &at::Context::setSDPUseCuDNN},
    {&at::Context::userEnabledOverrideableSDP, &at::Context::setSDPUseOverrideable},
}};

/// LibTorch names an accelerator wherever it was built for one: its devices count.
std::optional<c10::Device> currentAccelerator() {
  const auto type = at::getAccelerator();
  if (!type || !c10::impl::hasDeviceGuardImpl(*type)) return std::nullopt;
  const c10::impl::VirtualGuardImpl guard(*type);
  if (guard.deviceCount() == 0) return std::nullopt;
  try {
    return guard.getDevice();
  } catch (const c10::Error&) {
    // In a forked process CUDA can't be used, which is no business of what runs on the CPU.
    return std::nullopt;
  }
}

}  // namespace

AmbientState AmbientState::current() {
  AmbientState state;
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    state.autocast_[i] = {at::autocast::is_autocast_enabled(kAutocastDevices[i]),
                          at::autocast::get_autocast_dtype(kAutocastDevices[i])};
  }
  state.autocast_cache_ = at::autocast::is_autocast_cache_enabled();
  state.default_dtype_ = c10::get_default_dtype();
  const at::Context& context = at::globalContext();
  for (size_t i = 0; i < kPrecisions.size(); ++i) {
    state.precisions_[i] = context.float32Precision(kPrecisions[i].backend, kPrecisions[i].op);
  }
  for (size_t i = 0; i < kSwitches.size(); ++i) {
    state.switches_[i] = (context.*kSwitches[i].get)();
  }
  state.reductions_ = {context.allowFP16ReductionCuBLAS(), context.allowBF16ReductionCuBLAS()};
  state.threads_ = at::get_num_threads();
  state.deterministic_ = context.deterministicAlgorithms();
  state.deterministic_warn_only_ = context.deterministicAlgorithmsWarnOnly();
  state.device_ = currentAccelerator();
  return state;
}

bool AmbientState::operator==(const AmbientState& other) const {
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    if (autocast_[i].enabled != other.autocast_[i].enabled ||
        autocast_[i].dtype != other.autocast_[i].dtype) {
      return false;
    }
  }
  return autocast_cache_ == other.autocast_cache_ && default_dtype_ == other.default_dtype_ &&
         precisions_ == other.precisions_ && switches_ == other.switches_ &&
         reductions_ == other.reductions_ && threads_ == other.threads_ &&
         deterministic_ == other.deterministic_ &&
         deterministic_warn_only_ == other.deterministic_warn_only_ && device_ == other.device_;
}

void AmbientState::apply() const {
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kAutocastDevices[i], autocast_[i].enabled);
    at::autocast::set_autocast_dtype(kAutocastDevices[i], autocast_[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
  if (c10::get_default_dtype() != default_dtype_) {
    c10::set_default_dtype(default_dtype_);
  }
  at::Context& context = at::globalContext();
  for (size_t i = 0; i < kPrecisions.size(); ++i) {
    const auto [backend, op] = kPrecisions[i];
    if (context.float32Precision(backend, op) != precisions_[i]) {
      context.setFloat32Precision(backend, op, precisions_[i]);
    }
  }
  for (size_t i = 0; i < kSwitches.size(); ++i) {
    if ((context.*kSwitches[i].get)() != switches_[i]) {
      (context.*kSwitches[i].set)(switches_[i]);
    }
  }
  using at::CuBLASReductionOption;
  const auto reduces = [](CuBLASReductionOption option) {
    return option != CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK &&
           option != CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK;
  };
  const auto splits = [](CuBLASReductionOption option) {
    return option != CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK;
  };
  if (context.allowFP16ReductionCuBLAS() != reductions_[0]) {
    context.setAllowFP16ReductionCuBLAS(reduces(reductions_[0]), splits(reductions_[0]));
  }
  if (context.allowBF16ReductionCuBLAS() != reductions_[1]) {
    context.setAllowBF16ReductionCuBLAS(reduces(reductions_[1]), splits(reductions_[1]));
  }
  if (at::get_num_threads() != threads_) {
    at::set_num_threads(threads_);
  }
  if (context.deterministicAlgorithms() != deterministic_ ||
      context.deterministicAlgorithmsWarnOnly() != deterministic_warn_only_) {
    context.setDeterministicAlgorithms(deterministic_, deterministic_warn_only_);
  }
  if (device_) {
    // Does nothing where it is current already.
    c10::impl::VirtualGuardImpl(device_->type()).setDevice(*device_);
  }
}

AmbientState::Scope::Scope(const AmbientState& state) : before_(current()) {
  AmbientState wanted = state;
  wanted.autocast_cache_ = false;
  if (!(wanted == before_)) {
    wanted.apply();
  }
}

AmbientState::Scope::~Scope() { before_.apply(); }

}  // namespace remat::runtime
