#pragma once

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <array>
#include <optional>

namespace remat::runtime {

/// What beside its arguments decides what an operator computes: autocast of each device type (on or
/// off, dtype), default dtype, precision of float32 matmuls, convolutions and RNNs (TF32,
/// bfloat16), deterministic algorithms, switches that choose between kernels, how many threads
/// share a sum, and which of several accelerators is current: what `device="cuda"` means. Taken in
/// the forward, put in place around a replay.
class AmbientState {
 public:
  /// The calling thread's present state.
  static AmbientState current();

  /// Puts `state` in place and restores what was there before, exceptions included. The autocast
  /// cache is off inside: a cast made in a backward would stay in it for nobody.
  class Scope;

 private:
  struct Autocast {
    bool enabled = false;
    at::ScalarType dtype = at::kFloat;
  };
  static constexpr std::array<at::DeviceType, 2> kAutocastDevices = {at::kCPU, at::kCUDA};

  bool operator==(const AmbientState& other) const;
  void apply() const;

  std::array<Autocast, kAutocastDevices.size()> autocast_;
  bool autocast_cache_ = true;
  caffe2::TypeMeta default_dtype_;
  std::array<at::Float32Precision, 6> precisions_{};
  std::array<bool, 13> switches_{};
  std::array<at::CuBLASReductionOption, 2> reductions_{};  ///< of float16 and bfloat16 matmuls
  int threads_ = 1;                                        ///< of kernels on the CPU
  bool deterministic_ = false;
  bool deterministic_warn_only_ = false;
  std::optional<c10::Device> device_;  ///< none where there is no accelerator
};

class AmbientState::Scope {
 public:
  explicit Scope(const AmbientState& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  AmbientState before_;
};

}  // namespace remat::runtime
