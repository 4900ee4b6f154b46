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

RepeatableDraw::RepeatableDraw(c10::Device device, const Draw& draw) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  start_ = generator.clone();
  at::Generator drawn_from = start_.clone();
  draw(drawn_from);
  copyState(generator, drawn_from);
}

void RepeatableDraw::again(const Draw& draw) const { draw(start_.clone()); }

}  // namespace remat::runtime
