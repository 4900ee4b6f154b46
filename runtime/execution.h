#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/capture.h"
#include "runtime/frame.h"
#include "runtime/region_program.h"

namespace remat::runtime {

/// Told what one execution does, node by node.
class ExecutionObserver {
 public:
  virtual ~ExecutionObserver() = default;
  /// Every slot keeps its tensor, observed, as in the program without Remat. False: regions work as
  /// ever, and slotSaved is not called.
  virtual bool recordsSlots() const { return true; }
  /// In the node's own order; ids are redirected through the branches taken.
  struct NodeValues {
    std::vector<int32_t> input_ids;
    std::vector<c10::IValue> inputs;
    std::vector<int32_t> output_ids;
    std::vector<c10::IValue> outputs;
  };
  virtual void beforeNode(int32_t node) = 0;
  virtual void afterNode(int32_t node, const NodeValues& values) = 0;
  /// What a slot holds.
  struct Saved {
    int32_t node = -1;                     ///< that saved it, the one just run
    int32_t value = -1;                    ///< -1: internal, or what autocast made of a value
    int32_t cast_of = -1;                  ///< the value that autocast made it of
    const at::Tensor* external = nullptr;  ///< what it made it of, if that stays at hand anyway
  };
  /// One slot that the node just run saved. Decides the slot (keeps it, observed).
  virtual void slotSaved(SlotHooks& slot, const Saved& saved) = 0;
  /// `value` got the content of an argument (node -1) or was let go of after `node`.
  virtual void argument(int32_t value, const c10::IValue& content) = 0;
  virtual void dropped(int32_t value) = 0;
};

/// Runs a region once. With gradients off it just runs; else it decides for every tensor that
/// autograd saves whether the slot keeps it or gets a handle.
class Execution {
 public:
  explicit Execution(std::shared_ptr<const RegionProgram> program,
                     ExecutionObserver* observer = nullptr);

  /// `arguments` are the region's inputs, self included; the results are its outputs. An argument
  /// that is dead after its first use is freed then, if the caller has let go of it.
  std::vector<c10::IValue> run(std::vector<c10::IValue> arguments);

 private:
  struct Match {
    int32_t value = -1;
    int32_t element = -1;
    bool cast = false;
    bool argument = false;  ///< of the node
    const at::Tensor* source = nullptr;
  };

  void runNodes(const std::vector<int32_t>& nodes);
  void runBranch(int32_t index);
  void runCall(int32_t index);
  std::vector<c10::IValue> call(int32_t index, std::vector<c10::IValue> inputs);
  std::vector<c10::IValue> drawMask(int32_t index, const std::vector<c10::IValue>& inputs);
  void finishCall(int32_t index, std::vector<c10::IValue> outputs);
  void copyStatistics(int32_t index);
  void notifyAfter(int32_t index);
  void decideSlots(int32_t index, const CaptureScope& scope);
  void decideSlot(int32_t index, SlotHooks& slot);
  bool isInternal(const ProgramNode& node, const at::Tensor& saved) const;
  Match match(const ProgramNode& node, const at::Tensor& saved) const;
  void bind(int32_t value, const c10::IValue& content);
  void holdBoundaries(const ProgramNode& node);
  void keepGradientFlags(int32_t index, const std::vector<c10::IValue>& inputs);
  void drop(int32_t value);
  bool recordsSlots() const { return observer_ != nullptr && observer_->recordsSlots(); }
  int32_t resolve(int32_t value) const { return redirect_[value] < 0 ? value : redirect_[value]; }
  const c10::IValue& content(int32_t value) const {
    return program_->is_constant[value] != 0 ? program_->constants[value] : env_[value];
  }

  /// Storages whose bytes stay anyway: of kept values. Weak references keep an address from being
  /// reused.
  void noteKeptStorages(const c10::IValue& content);
  bool isKeptStorage(const at::Tensor& tensor) const;

  std::shared_ptr<const RegionProgram> program_;
  ExecutionObserver* observer_;
  std::shared_ptr<Frame> frame_;  ///< null with gradients off and while slots are recorded
  bool capture_ = false;
  bool caller_has_hooks_ = false;
  std::vector<c10::IValue> env_;    ///< by value id
  std::vector<c10::IValue> stack_;  ///< empty: memory for the next call's arguments
  std::vector<int32_t> redirect_;
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>>
      kept_storages_;
};

}  // namespace remat::runtime
