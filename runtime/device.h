#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace remat::runtime {

/// Where a counting generator (Philox) stands. Two generators that stand at the same place draw the
/// same numbers.
struct GeneratorPosition {
  /// The graph whose capture the position belongs to; 0 outside of captures. In a capture seed and
  /// first offset are not known yet: kernels read them, whenever the graph runs, from the device's
  /// memory, and `offset` counts from there.
  uint64_t capture = 0;
  uint64_t seed = 0;  ///< outside of captures
  uint64_t offset = 0;
  int64_t* seed_at = nullptr;          ///< in a capture, on the device
  int64_t* first_offset_at = nullptr;  ///< in a capture, on the device

  bool operator==(const GeneratorPosition& other) const {
    return capture == other.capture && seed == other.seed && offset == other.offset &&
           seed_at == other.seed_at && first_offset_at == other.first_offset_at;
  }
};

/// What the runtime asks of an accelerator beyond what c10 knows of every one (streams, events,
/// allocators). There is one for CUDA, in runtime/cuda: it refers to LibTorch's CUDA libraries,
/// which nothing else in the runtime does, so that all of the rest builds, and is tested, without.
/// For a device type that has none everything works as well, except that generators are saved and
/// restored as a whole, and that captures of graphs are not known of.
class DeviceInterface {
 public:
  virtual ~DeviceInterface() = default;

  /// The graph that the current stream of `device` is being captured into; 0: none.
  virtual uint64_t currentCapture(c10::Device device) const = 0;

  /// Queues on the current stream of `device` what keeps it busy for about that time, and waits for
  /// nothing.
  virtual void occupy(c10::Device device, double seconds) const = 0;

  // The generators below are of one device. Callers hold the lock of a generator that others use.

  virtual GeneratorPosition position(const at::Generator& generator) const = 0;
  /// A generator of its own on `device`, at `position`, which is of the capture under way, if any.
  virtual at::Generator generatorAt(c10::Device device,
                                    const GeneratorPosition& position) const = 0;
  /// Moves `generator` on by `numbers`, as if that many had been drawn.
  virtual void advance(at::Generator& generator, uint64_t numbers) const = 0;
};

/// Makes `device`, which is never destroyed, known for `type`. Called by static initialisers.
void registerDevice(c10::DeviceType type, const DeviceInterface* device);

/// Null where none is known.
const DeviceInterface* findDevice(c10::DeviceType type) noexcept;

}  // namespace remat::runtime
