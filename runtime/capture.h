#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/packed_value.h"

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
/// handle.
class SlotHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SlotHooks(CaptureScope* scope) : scope_(scope) {}
  ~SlotHooks() override;

  void call_pack_hook(const at::Tensor& tensor) override { noted_ = tensor; }
  at::Tensor call_unpack_hook() override;

  /// The tensor that was saved, until the slot is decided.
  const at::Tensor& noted() const { return noted_; }

  /// Keeps the tensor; `name` is for messages. Call outside of a capture.
  void keep(std::string name);
  /// Replaces the tensor by `value` (or its element, see tensors.h) of `frame`. The tensor is
  /// `source`, which the value holds now, or a view of it.
  void handle(std::shared_ptr<Frame> frame, int32_t value, int32_t element,
              const at::Tensor& source);
  /// Replaces the tensor by a cast, to the tensor's dtype, of `source`: an external tensor ...
  void keepCast(const at::Tensor& source, std::string name);
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

  at::Tensor unpackKept() const;
  void noteCast(const at::Tensor& source);
  at::Tensor castAgain(const at::Tensor& source) const;
  at::Tensor unpackHandle() const;

  CaptureScope* scope_;  ///< null once decided
  at::Tensor noted_;
  std::string name_;
  std::optional<PackedValue> kept_;
  std::shared_ptr<Frame> frame_;
  int32_t value_ = -1;
  int32_t element_ = -1;
  bool cast_ = false;
  Geometry source_;               ///< of the handle's value in the forward
  std::optional<Geometry> view_;  ///< of the saved tensor, if it was only a part of the value
                                  ///< or another view of its cast
  at::ScalarType dtype_ = at::kFloat;
  std::shared_ptr<SlotObserver> observer_;
  int32_t slot_ = -1;
};

/// While one lives, what autograd saves on this thread is noted by it. Scopes nest; what a scope
/// noted and nobody decided on is kept when it ends (after an exception without asking the hooks
/// that the caller has installed: they may be what threw).
class CaptureScope {
 public:
  CaptureScope();
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  /// Stops noting: before slots are decided.
  void end();
  /// In the order in which they were saved, without those that are gone already.
  const std::vector<SlotHooks*>& slots() const { return slots_; }
  /// Forgets what was noted: of a graph that is about to be thrown away. The result, which may hold
  /// that graph, goes before the scope does.
  std::vector<at::Tensor> discard();

 private:
  friend class SlotHooks;
  friend class HookEngine;

  std::vector<SlotHooks*> slots_;
  CaptureScope* outer_;
  int exceptions_;
  bool active_ = true;
  /// What the slots noted, to the end: a tensor that the operator threw away may own the node that
  /// owns its slot, and nobody else owns the tensor.
  std::vector<at::Tensor> held_;
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
