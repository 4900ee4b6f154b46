#include "runtime/generator_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <mutex>

namespace remat::runtime {
namespace {

void copyState(at::Generator& to, const at::Generator& from) {
  if (to.device().is_cpu()) {
    auto* target = at::check_generator<at::CPUGeneratorImpl>(to);
    auto* source = at::check_generator<at::CPUGeneratorImpl>(from);
    target->set_engine(source->engine());
    target->set_next_float_normal_sample(source->next_float_normal_sample());
    target->set_next_double_normal_sample(source->next_double_normal_sample());
    return;
  }
  to.set_state(from.get_state());
}

}  // namespace

RepeatableDraw::RepeatableDraw(c10::Device device, const Draw& draw) : device_(device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  device_ = generator.device();
  if (const DeviceInterface* known = findDevice(device.type())) {
    while (!drawAtPosition(*known, generator, draw)) {
    }
    return;
  }
  const std::lock_guard<std::mutex> lock(generator.mutex());
  start_ = generator.clone();
  const at::Generator drawn_from = start_.clone();
  draw(drawn_from);
  copyState(generator, drawn_from);
}

/// Not under the generator's lock: operators allocate, and an accelerator's allocator may ask for
/// Python's lock, whose holder may wait for the generator. Whether somebody else drew in between is
/// seen afterwards; what was drawn is thrown away then.
bool RepeatableDraw::drawAtPosition(const DeviceInterface& known, at::Generator& generator,
                                    const Draw& draw) {
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    position_ = known.position(generator);
  }
  const at::Generator drawn_from = known.generatorAt(device_, position_);
  draw(drawn_from);
  const uint64_t numbers = known.position(drawn_from).offset - position_.offset;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (!(known.position(generator) == position_)) return false;
  known.advance(generator, numbers);
  return true;
}

void RepeatableDraw::again(const Draw& draw) const {
  if (start_.defined()) {
    draw(start_.clone());
    return;
  }
  const DeviceInterface& known = *findDevice(device_.type());
  const uint64_t capture = known.currentCapture(device_);
  TORCH_CHECK(
      capture == position_.capture, "remat: random numbers that were drawn ",
      position_.capture == 0 ? "outside of a graph's capture" : "while a graph was captured",
      " have to be drawn again ",
      capture == 0             ? "outside of it"
      : position_.capture == 0 ? "inside of one"
                               : "while another one is",
      ": the same numbers can't be had there. Capture forward and backward in one graph, "
      "or neither of them");
  draw(known.generatorAt(device_, position_));
}

}  // namespace remat::runtime
