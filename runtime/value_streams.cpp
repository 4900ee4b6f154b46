#include "runtime/value_streams.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "runtime/tensors.h"

namespace remat::runtime {
namespace {

bool hasStreams(c10::Device device) {
  return !device.is_cpu() && !device.is_meta() && c10::impl::hasDeviceGuardImpl(device.type());
}

}  // namespace

ValueStreams::ValueStreams(const c10::IValue& value) {
  forEachTensor(value, [&](const at::Tensor& tensor, int32_t) {
    const c10::Device device = tensor.device();
    if (!hasStreams(device)) return;
    const c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    if (std::find(streams_.begin(), streams_.end(), current) == streams_.end()) {
      streams_.push_back(current);
    }
  });
}

void ValueStreams::wait() const {
  for (const c10::Stream& made : streams_) {
    const c10::Stream reading =
        c10::impl::VirtualGuardImpl(made.device_type()).getStream(made.device());
    if (reading == made) continue;
    // Of all that is queued by now, not of the value alone: an event for each value would cost two
    // calls of the driver where one stream makes and reads everything, which is the rule.
    c10::Event queued(made.device_type());
    queued.record(made);
    queued.block(reading);
  }
}

void ValueStreams::noteReading(const c10::IValue& value) const {
  for (const c10::Stream& made : streams_) {
    const c10::impl::VirtualGuardImpl guard(made.device_type());
    const c10::Stream reading = guard.getStream(made.device());
    if (reading == made) continue;
    forEachTensor(value, [&](const at::Tensor& tensor, int32_t) {
      if (tensor.device() == made.device()) {
        guard.recordDataPtrOnStream(tensor.storage().data_ptr(), reading);
      }
    });
  }
}

}  // namespace remat::runtime
