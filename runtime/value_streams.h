#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Stream.h>

#include <vector>

namespace remat::runtime {

/// The streams at whose ends the tensors of a value are there: accelerators only queue what makes
/// them. None for what is on the CPU.
///
/// The forward, the engine's thread of each device and a caller that unpacks a saved tensor may all
/// run on streams of their own. Whoever reads on another stream than a value was made on has that
/// stream wait for the maker's, and tells the allocator, which would else hand the bytes to the
/// maker's next tensor while they are still read. Nothing here has the host wait for the device.
class ValueStreams {
 public:
  ValueStreams() = default;
  /// The streams that are current for the devices of the tensors of `value`.
  explicit ValueStreams(const c10::IValue& value);

  /// Has the streams that are current now wait for these, where they are others.
  void wait() const;
  /// Tells the allocator that `value`, whose streams these are, is read on the streams that are
  /// current now, where they are others.
  void noteReading(const c10::IValue& value) const;

 private:
  std::vector<c10::Stream> streams_;
};

/// A value together with its streams: made here and now, read maybe elsewhere.
class QueuedValue {
 public:
  QueuedValue() = default;
  explicit QueuedValue(c10::IValue value) : value_(std::move(value)), streams_(value_) {}

  /// The value, ready on the streams that are current now.
  const c10::IValue& read() const {
    streams_.wait();
    streams_.noteReading(value_);
    return value_;
  }

 private:
  c10::IValue value_;
  ValueStreams streams_;
};

}  // namespace remat::runtime
