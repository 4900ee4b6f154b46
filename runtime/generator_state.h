#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <functional>

namespace remat::runtime {

/// Draws that can be made again. The first time a draw is made from a private clone of its device's
/// default generator while that one is locked, and the default then takes the clone's state: the
/// same numbers as without us, and no other thread draws in between. Made again, it draws from
/// another clone of the state at the start: the caller's stream does not move.
class RepeatableDraw {
 public:
  using Draw = std::function<void(at::Generator)>;

  /// Makes the draw for the first time.
  RepeatableDraw(c10::Device device, const Draw& draw);

  /// Makes the same draw again. Thread-safe.
  void again(const Draw& draw) const;

 private:
  at::Generator start_;
};

}  // namespace remat::runtime
