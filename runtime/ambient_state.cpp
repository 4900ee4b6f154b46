#include "runtime/ambient_state.h"

#include <c10/core/DefaultDtype.h>

namespace remat::runtime {
namespace {

const char* nameOf(at::Float32MatmulPrecision precision) {
  switch (precision) {
    case at::Float32MatmulPrecision::HIGHEST:
      return "highest";
    case at::Float32MatmulPrecision::HIGH:
      return "high";
    case at::Float32MatmulPrecision::MEDIUM:
      return "medium";
  }
  return "highest";
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
  state.matmul_precision_ = context.float32MatmulPrecision();
  state.cudnn_tf32_ = context.allowTF32CuDNN();
  state.deterministic_ = context.deterministicAlgorithms();
  state.deterministic_warn_only_ = context.deterministicAlgorithmsWarnOnly();
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
         matmul_precision_ == other.matmul_precision_ && cudnn_tf32_ == other.cudnn_tf32_ &&
         deterministic_ == other.deterministic_ &&
         deterministic_warn_only_ == other.deterministic_warn_only_;
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
  if (context.float32MatmulPrecision() != matmul_precision_) {
    context.setFloat32MatmulPrecision(nameOf(matmul_precision_));
  }
  if (context.allowTF32CuDNN() != cudnn_tf32_) {
    context.setAllowTF32CuDNN(cudnn_tf32_);
  }
  if (context.deterministicAlgorithms() != deterministic_ ||
      context.deterministicAlgorithmsWarnOnly() != deterministic_warn_only_) {
    context.setDeterministicAlgorithms(deterministic_, deterministic_warn_only_);
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
