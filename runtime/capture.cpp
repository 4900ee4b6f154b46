#include "runtime/capture.h"

#include <ATen/ops/as_strided.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "runtime/frame.h"
#include "runtime/packed_value.h"
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
    CaptureScope* scope = t_scope;
    auto hooks = std::make_unique<SlotHooks>(scope);
    scope->slots_.push_back(hooks.get());
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

void* SlotHooks::operator new(size_t /*size*/) {
  static_assert(sizeof(SlotHooks) <= kLargestSlot);
  return allocateSlot();
}

SlotHooks::~SlotHooks() {
  if (scope_ != nullptr) {
    auto& slots = scope_->slots_;
    slots.erase(std::remove(slots.begin(), slots.end(), this), slots.end());
  }
  if (isHandle()) {
    source_->frame->dropHandle(source_->value);
  }
  if (observed_ != nullptr) {
    // The storage goes first, so that its end is on record before the slot's.
    tensor_.reset();
    hooked_.reset();
    observed_->observer->slotReleased(observed_->slot);
  }
}

at::Tensor SlotHooks::call_unpack_hook() {
  if (observed_ != nullptr) {
    observed_->observer->slotUnpacked(observed_->slot);
  }
  if (isHandle()) {
    return unpackHandle();
  }
  return keeps_ ? unpackKept() : tensor_;
}

at::Tensor SlotHooks::unpackKept() const {
  at::Tensor tensor = tensor_;
  try {
    if (hooked_ != nullptr) {
      tensor = hooked_->unpack();
    } else if (tensor.defined()) {
      TORCH_CHECK(tensor._version() == version_,
                  "one of the variables needed for gradient computation has been modified by an "
                  "inplace operation: [",
                  tensor.toString(), " ", tensor.sizes(), "] is at version ", tensor._version(),
                  "; expected version ", version_, " instead");
    }
  } catch (c10::Error& error) {
    error.add_context("while Remat handed back the saved value " + *name_);
    throw;
  }
  return source_ != nullptr ? castAgain(tensor) : tensor;
}

/// As autocast made it in the forward, and the same view of that.
at::Tensor SlotHooks::castAgain(const at::Tensor& source) const {
  at::Tensor cast = source.to(source_->dtype);
  const auto& view = source_->view;
  return view ? cast.as_strided(view->sizes, view->strides, view->offset) : cast;
}

at::Tensor SlotHooks::unpackHandle() const {
  const at::NoGradGuard no_grad;
  const auto& [frame, value, element, cast, geometry, view, dtype] = *source_;
  const std::string& name = frame->program().described[value];
  at::Tensor tensor = frame->use(value, element);
  TORCH_CHECK(tensor.sizes() == c10::IntArrayRef(geometry.sizes), "remat: recomputing ", name,
              " gave sizes ", tensor.sizes(), " where the forward had ", geometry.sizes);
  TORCH_CHECK(cast || tensor.scalar_type() == dtype, "remat: recomputing ", name, " gave dtype ",
              tensor.scalar_type(), " where the forward had ", dtype);
  TORCH_CHECK(!view || Geometry(tensor) == geometry, "remat: recomputing ", name, " gave strides ",
              tensor.strides(), " and offset ", tensor.storage_offset(), " where the forward had ",
              geometry.strides, " and ", geometry.offset, ", and the backward needs a view of it");
  if (cast) {
    return castAgain(tensor);
  }
  return view ? tensor.as_strided(view->sizes, view->strides, view->offset) : tensor;
}

SlotHooks::Geometry::Geometry(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      offset(tensor.storage_offset()) {}

bool SlotHooks::Geometry::operator==(const Geometry& other) const {
  return sizes == other.sizes && strides == other.strides && offset == other.offset;
}

void SlotHooks::hold(const at::Tensor& tensor, bool detached, Name name) {
  const bool through_hooks = scope_->caller_has_hooks_;
  scope_ = nullptr;
  name_ = std::move(name);
  try {
    at::Tensor held;
    if (!tensor.defined()) {
    } else if (through_hooks) {
      const CapturePause pause;
      hooked_ = std::make_unique<torch::autograd::SavedVariable>(savable(tensor), false);
    } else {
      held = detached || tensor.is_inference() ? savable(tensor) : tensor;
      version_ = held._version();
    }
    keeps_ = true;
    tensor_ = std::move(held);
  } catch (...) {
    // A hook of the caller's. The tensor may own the node that owns this slot.
    tensor_ = tensor_.detach();
    throw;
  }
}

void SlotHooks::keep(Name name) { hold(tensor_, true, std::move(name)); }
void SlotHooks::keepArgument(Name name) { hold(tensor_, false, std::move(name)); }

void SlotHooks::keepCast(const at::Tensor& source, Name name) {
  noteCast(source);
  hold(source, true, std::move(name));
}

void SlotHooks::noteCast(const at::Tensor& source) {
  source_ = std::make_unique<Source>();
  source_->cast = true;
  source_->dtype = tensor_.scalar_type();
  if (tensor_.sizes() != source.sizes() || tensor_.strides() != source.strides()) {
    source_->view = Geometry(tensor_);
  }
}

void SlotHooks::handle(std::shared_ptr<Frame> frame, int32_t value, int32_t element,
                       const at::Tensor& source) {
  scope_ = nullptr;
  if (source_ == nullptr) {
    source_ = std::make_unique<Source>();
    source_->dtype = tensor_.scalar_type();
  }
  source_->geometry = Geometry(source);
  if (isViewAs(tensor_, source)) {
    Geometry noted(tensor_);
    if (!(noted == source_->geometry)) {
      source_->view = std::move(noted);
    }
  }
  tensor_.reset();
  source_->value = value;
  source_->element = element;
  frame->addHandle(value);
  source_->frame = std::move(frame);
}

void SlotHooks::handleCast(std::shared_ptr<Frame> frame, int32_t value, int32_t element,
                           const at::Tensor& source) {
  noteCast(source);
  handle(std::move(frame), value, element, source);
}

void SlotHooks::observe(std::shared_ptr<SlotObserver> observer, int32_t slot) {
  observed_ = std::make_unique<Observed>(Observed{std::move(observer), slot});
}

CaptureScope::CaptureScope(bool caller_has_hooks)
    : outer_(t_scope),
      exceptions_(std::uncaught_exceptions()),
      caller_has_hooks_(caller_has_hooks) {
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
      slot->tensor_ = slot->tensor_.detach();
    } else {
      static const auto kName = std::make_shared<const std::string>("of an operator that failed");
      slot->keep(kName);
    }
  }
}

bool CaptureScope::callerHasHooks() {
  return g_engine_before->get_default_saved_variable_hooks() != nullptr;
}

void CaptureScope::end() {
  if (active_) {
    active_ = false;
    t_scope = outer_;
    for (const SlotHooks* slot : slots_) {
      held_.push_back(slot->tensor_);
    }
  }
}

std::vector<at::Tensor> CaptureScope::discard() {
  std::vector<at::Tensor> noted(std::make_move_iterator(held_.begin()),
                                std::make_move_iterator(held_.end()));
  held_.clear();
  for (SlotHooks* slot : slots_) {
    noted.push_back(std::move(slot->tensor_));
  }
  return noted;
}

CapturePause::CapturePause() : paused_(t_scope) { t_scope = nullptr; }
CapturePause::~CapturePause() { t_scope = paused_; }

}  // namespace remat::runtime
