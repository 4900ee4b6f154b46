#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/slot_memory.h"

namespace remat::runtime {

class Frame;
class CaptureScope;

/// Told what happens to the slots of a recorded step.
class SlotObserver {
 public:
  virtual ~SlotObserver() = default;
  virtual void slotUnpacked(int32_t slot) = 0;
  virtual void slotReleased(int32_t slot) = 0;
};

/// What stands in one saved slot of an autograd node that a region's node made. While that node
/// runs it notes the tensor; afterwards the executor decides whether the slot keeps it or holds a
/// handle. There is one for each tensor that a step saves: what only some need is allocated apart.
class SlotHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SlotHooks(CaptureScope* scope) : scope_(scope) {}
  ~SlotHooks() override;
  static void* operator new(size_t size);
  static void operator delete(void* slot) noexcept { freeSlot(slot); }

  void call_pack_hook(const at::Tensor& tensor) override { tensor_ = tensor; }
  at::Tensor call_unpack_hook() override;

  /// The tensor that was saved, until the slot is decided.
  const at::Tensor& noted() const { return tensor_; }

  using Name = std::shared_ptr<const std::string>;

  /// Keeps the tensor; `name` is for messages. Call outside of a capture.
  void keep(Name name);
  /// The same of an argument that the node's operator didn't write: its history can't hold the
  /// autograd node that owns the slot, so it is kept as it is, as autograd does.
  void keepArgument(Name name);
  /// Replaces the tensor by `value` (or its element, see tensors.h) of `frame`. The tensor is
  /// `source`, which the value holds now, or a view of it.
  void handle(std::shared_ptr<Frame> frame, int32_t value, int32_t element,
              const at::Tensor& source);
  /// Replaces the tensor by a cast, to the tensor's dtype, of `source`: an external tensor ...
  void keepCast(const at::Tensor& source, Name name);
  /// ... or a value of `frame`.
  void handleCast(std::shared_ptr<Frame> frame, int32_t value, int32_t element,
                  const at::Tensor& source);
  /// Tells `observer` of the slot's use and end under the number `slot`.
  void observe(std::shared_ptr<SlotObserver> observer, int32_t slot);

 private:
  friend class CaptureScope;

  struct Geometry {
    Geometry() = default;
    explicit Geometry(const at::Tensor& tensor);
    bool operator==(const Geometry& other) const;

    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t offset = 0;
  };

  /// How the saved tensor is made again.
  struct Source {
    std::shared_ptr<Frame> frame;  ///< null: it is a cast of what the slot keeps
    int32_t value = -1;
    int32_t element = -1;
    bool cast = false;
    Geometry geometry;             ///< of the handle's value in the forward
    std::optional<Geometry> view;  ///< of the saved tensor, if it was only a part of the value
                                   ///< or another view of its cast
    at::ScalarType dtype = at::kFloat;
  };

  struct Observed {
    std::shared_ptr<SlotObserver> observer;
    int32_t slot = -1;
  };

  bool isHandle() const { return source_ != nullptr && source_->frame != nullptr; }
  void hold(const at::Tensor& tensor, bool detached, Name name);
  at::Tensor unpackKept() const;
  void noteCast(const at::Tensor& source);
  at::Tensor castAgain(const at::Tensor& source) const;
  at::Tensor unpackHandle() const;

  CaptureScope* scope_;  ///< null once decided
  at::Tensor tensor_;    ///< as it was saved; then what is kept
  uint32_t version_ = 0;
  bool keeps_ = false;
  Name name_;
  /// The kept tensor where the caller has installed hooks.
  std::unique_ptr<torch::autograd::SavedVariable> hooked_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Observed> observed_;
};

/// While one lives, what autograd saves on this thread is noted by it. Scopes nest; what a scope
/// noted and nobody decided on is kept when it ends (after an exception without asking the hooks
/// that the caller has installed: they may be what threw).
class CaptureScope {
 public:
  /// `caller_has_hooks`: what callerHasHooks() says, for who asks once for many scopes.
  explicit CaptureScope(bool caller_has_hooks);
  CaptureScope() : CaptureScope(callerHasHooks()) {}
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  /// Whether the calling thread has saved-tensor hooks of its own installed (`save_on_cpu` and the
  /// like), which what slots keep then goes through. Call after installCapture().
  static bool callerHasHooks();

  /// Stops noting: before slots are decided.
  void end();
  /// In the order in which they were saved, without those that are gone already.
  c10::ArrayRef<SlotHooks*> slots() const { return slots_; }
  /// Forgets what was noted: of a graph that is about to be thrown away. The result, which may hold
  /// that graph, goes before the scope does.
  std::vector<at::Tensor> discard();

 private:
  friend class SlotHooks;
  friend class HookEngine;

  c10::SmallVector<SlotHooks*, 4> slots_;
  CaptureScope* outer_;
  int exceptions_;
  bool caller_has_hooks_;
  bool active_ = true;
  /// What the slots noted, to the end: a tensor that the operator threw away may own the node that
  /// owns its slot, and nobody else owns the tensor.
  c10::SmallVector<at::Tensor, 4> held_;
};

/// Turns capture off on this thread while it lives: around code of our own that may save tensors.
class CapturePause {
 public:
  CapturePause();
  ~CapturePause();
  CapturePause(const CapturePause&) = delete;
  CapturePause& operator=(const CapturePause&) = delete;

 private:
  CaptureScope* paused_;
};

/// Puts our saved-tensor hooks in front of the engine found, once per process. They act only on
/// threads and at times where a CaptureScope is active; everything else is the engine's own.
void installCapture();

}  // namespace remat::runtime
