#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>
#include <vector>

namespace remat::runtime::test {

/// An accelerator, `fake`, of two devices with streams, events and generators, for machines that
/// have none. Its operators compute at once on the CPU. What it is for is the order in which a real
/// one could have run them: every stream has a vector clock, which events carry to others, every
/// storage knows which stream wrote and read it when, and what was not ordered is a race. So is a
/// storage that is freed while a stream reads it that the allocator was not told of. The engine
/// runs the backward of each device on a thread of its own, as for CUDA.
///
/// Registers it, with its DeviceInterface, once a process.
void registerFakeDevice();

inline constexpr int kFakeDevices = 2;
c10::Device fake(int index);
/// Stream `id` of a device; 0 is the default one.
c10::Stream fakeStream(int device, int id);

/// What happened since the last call.
struct FakeEvents {
  struct Run {
    std::string op;  ///< `aten::tanh`
    c10::Stream stream;
  };
  std::vector<std::string> races;
  std::vector<std::string> waits;  ///< of the host for a device: synchronisation, copies, items
  std::vector<Run> runs;
  int64_t recorded_events = 0;
  int64_t saved_states = 0;  ///< whole generator states, and copies of generators
};
FakeEvents takeFakeEvents();

/// Seeds the default generators.
void seedFakeDevices(uint64_t seed);
/// Has all streams of `device` be captured into the graph `capture`; 0: into none.
void setFakeCapture(int device, uint64_t capture);
/// Whether the fake's DeviceInterface is registered. It is to begin with.
void setFakeInterface(bool registered);

}  // namespace remat::runtime::test
