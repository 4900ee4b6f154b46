#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <functional>

#include "runtime/device.h"

namespace remat::runtime {

/// Draws that can be made again. The first time a draw is made from a private generator at the
/// place of its device's default one, and the default then moves to where the private one came: the
/// same numbers as without us, and no other thread draws in between. Made again, it draws from
/// another private generator at the same place: the caller's stream does not move.
///
/// On devices with a DeviceInterface the place is a seed and an offset, which nothing needs to wait
/// for. There a draw may also be made while a graph is captured, and again in the same capture:
/// whenever the graph runs, both read the same seed and offset. If another thread drew in between,
/// the first draw is made anew. Elsewhere the default generator is locked meanwhile, as ATen's
/// kernels lock it.
class RepeatableDraw {
 public:
  using Draw = std::function<void(at::Generator)>;

  /// Makes the draw for the first time, or several times until it counts. `device` may lack an
  /// index: the current one then.
  RepeatableDraw(c10::Device device, const Draw& draw);

  /// Makes the same draw again. Thread-safe. Throws c10::Error where the draw was made in the
  /// capture of a graph and this is not that capture, or the other way round.
  void again(const Draw& draw) const;

 private:
  bool drawAtPosition(const DeviceInterface& known, at::Generator& generator, const Draw& draw);

  c10::Device device_;
  at::Generator start_;         ///< a copy, where there is no DeviceInterface
  GeneratorPosition position_;  ///< where there is one
};

}  // namespace remat::runtime
