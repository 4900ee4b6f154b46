#include "runtime/capture.h"

#include <ATen/ops/as_strided.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "runtime/frame.h"
#include "runtime/tensors.h"

namespace remat::runtime {
namespace {

using torch::autograd::Engine;

thread_local CaptureScope* t_scope = nullptr;
Engine* g_engine_before = nullptr;
Engine* g_hook_engine = nullptr;

Engine& engineStub() { return t_scope != nullptr ? *g_hook_engine : *g_engine_before; }

}  // namespace

/// Hands out our hooks. Everything else goes to the engine that was there before: anomaly metadata
/// of the wrong kind crashes Python.
class HookEngine final : public Engine {
 public:
  explicit HookEngine(Engine& before) : before_(before) {}

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return before_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
      std::shared_ptr<torch::autograd::Node> graph_root,
      torch::autograd::InputBuffer&& input_buffer) override {
    return before_.execute_with_graph_task(graph_task, std::move(graph_root),
                                           std::move(input_buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return before_.make_anomaly_metadata();
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    auto hooks = std::make_unique<SlotHooks>(t_scope);
    t_scope->slots_.push_back(hooks.get());
    return hooks;
  }
  void thread_on_exception(const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
                           const std::shared_ptr<torch::autograd::Node>& fn,
                           std::exception& e) override {
    before_.thread_on_exception(graph_task, fn, e);
  }
  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& ready_queue,
                   bool should_increment) override {
    before_.thread_init(device, ready_queue, should_increment);
  }

 private:
  Engine& before_;
};

void installCapture() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_engine_before = &Engine::get_default_engine();
    // Never destroyed: autograd may ask for it until the process ends.
    g_hook_engine = new HookEngine(*g_engine_before);
    torch::autograd::set_default_engine_stub(&engineStub);
  });
}

SlotHooks::~SlotHooks() {
  if (scope_ != nullptr) {
    auto& slots = scope_->slots_;
    slots.erase(std::remove(slots.begin(), slots.end(), this), slots.end());
  }
  if (frame_ != nullptr && value_ >= 0) {
    frame_->dropHandle(value_);
  }
  if (observer_ != nullptr) {
    // The storage goes first, so that its end is on record before the slot's.
    kept_.reset();
    observer_->slotReleased(slot_);
  }
}

at::Tensor SlotHooks::call_unpack_hook() {
  if (observer_ != nullptr) {
    observer_->slotUnpacked(slot_);
  }
  if (frame_ != nullptr) {
    return unpackHandle();
  }
  return kept_ ? unpackKept() : noted_;
}

at::Tensor SlotHooks::unpackKept() const {
  at::Tensor tensor;
  try {
    tensor = kept_->unpack().toTensor();
  } catch (c10::Error& error) {
    error.add_context("while Remat handed back the saved value " + name_);
    throw;
  }
  return cast_ ? castAgain(tensor) : tensor;
}

/// As autocast made it in the forward, and the same view of that.
at::Tensor SlotHooks::castAgain(const at::Tensor& source) const {
  at::Tensor cast = source.to(dtype_);
  return view_ ? cast.as_strided(view_->sizes, view_->strides, view_->offset) : cast;
}

at::Tensor SlotHooks::unpackHandle() const {
  const at::NoGradGuard no_grad;
  at::Tensor tensor = frame_->use(value_, element_);
  TORCH_CHECK(tensor.sizes() == c10::IntArrayRef(source_.sizes), "remat: recomputing ", name_,
              " gave sizes ", tensor.sizes(), " where the forward had ", source_.sizes);
  TORCH_CHECK(cast_ || tensor.scalar_type() == dtype_, "remat: recomputing ", name_, " gave dtype ",
              tensor.scalar_type(), " where the forward had ", dtype_);
  TORCH_CHECK(!view_ || Geometry(tensor) == source_, "remat: recomputing ", name_, " gave strides ",
              tensor.strides(), " and offset ", tensor.storage_offset(), " where the forward had ",
              source_.strides, " and ", source_.offset, ", and the backward needs a view of it");
  if (cast_) {
    return castAgain(tensor);
  }
  if (!view_) {
    return tensor;
  }
  return tensor.as_strided(view_->sizes, view_->strides, view_->offset);
}

SlotHooks::Geometry::Geometry(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      offset(tensor.storage_offset()) {}

bool SlotHooks::Geometry::operator==(const Geometry& other) const {
  return sizes == other.sizes && strides == other.strides && offset == other.offset;
}

void SlotHooks::keep(std::string name) {
  scope_ = nullptr;
  name_ = std::move(name);
  const CapturePause pause;
  try {
    kept_.emplace(noted_);
  } catch (...) {
    // A hook of the caller's. The tensor may own the node that owns this slot.
    noted_ = noted_.detach();
    throw;
  }
  noted_.reset();
}

void SlotHooks::keepCast(const at::Tensor& source, std::string name) {
  scope_ = nullptr;
  name_ = std::move(name);
  dtype_ = noted_.scalar_type();
  noteCast(source);
  noted_.reset();
  const CapturePause pause;
  kept_.emplace(source);
}

void SlotHooks::noteCast(const at::Tensor& source) {
  cast_ = true;
  if (noted_.sizes() != source.sizes() || noted_.strides() != source.strides()) {
    view_ = Geometry(noted_);
  }
}

void SlotHooks::handle(std::shared_ptr<Frame> frame, int32_t value, int32_t element,
                       const at::Tensor& source) {
  scope_ = nullptr;
  source_ = Geometry(source);
  dtype_ = noted_.scalar_type();
  if (isViewAs(noted_, source)) {
    Geometry noted(noted_);
    if (!(noted == source_)) {
      view_ = std::move(noted);
    }
  }
  noted_.reset();
  name_ = frame->program().described[value];
  value_ = value;
  element_ = element;
  frame->addHandle(value);
  frame_ = std::move(frame);
}

void SlotHooks::handleCast(std::shared_ptr<Frame> frame, int32_t value, int32_t element,
                           const at::Tensor& source) {
  noteCast(source);
  handle(std::move(frame), value, element, source);
}

void SlotHooks::observe(std::shared_ptr<SlotObserver> observer, int32_t slot) {
  observer_ = std::move(observer);
  slot_ = slot;
}

CaptureScope::CaptureScope() : outer_(t_scope), exceptions_(std::uncaught_exceptions()) {
  t_scope = this;
}

CaptureScope::~CaptureScope() {
  end();
  while (!slots_.empty()) {
    SlotHooks* slot = slots_.back();
    slots_.pop_back();
    if (slot->scope_ != this) {
      continue;
    }
    if (std::uncaught_exceptions() > exceptions_) {
      slot->scope_ = nullptr;
      slot->noted_ = slot->noted_.detach();
    } else {
      slot->keep("a tensor that an operator saved");
    }
  }
}

void CaptureScope::end() {
  if (active_) {
    active_ = false;
    t_scope = outer_;
    for (const SlotHooks* slot : slots_) {
      held_.push_back(slot->noted_);
    }
  }
}

std::vector<at::Tensor> CaptureScope::discard() {
  std::vector<at::Tensor> noted = std::move(held_);
  held_.clear();
  for (SlotHooks* slot : slots_) {
    noted.push_back(std::move(slot->noted_));
  }
  return noted;
}

CapturePause::CapturePause() : paused_(t_scope) { t_scope = nullptr; }
CapturePause::~CapturePause() { t_scope = paused_; }

}  // namespace remat::runtime
