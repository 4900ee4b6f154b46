#include "runtime/value_trace.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <functional>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

#include "runtime/execution.h"
#include "runtime/tensors.h"

namespace remat::runtime {
namespace {

uint64_t fingerprintOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const c10::AutoGradMode no_grad(false);
  const at::Tensor source = tensor.layout() == at::kStrided ? tensor.detach() : tensor.to_dense();
  const at::Tensor elements = source.resolve_conj().resolve_neg().cpu().contiguous();
  std::ostringstream kind;
  kind << elements.scalar_type() << elements.sizes();
  const std::string_view bytes(static_cast<const char*>(elements.const_data_ptr()),
                               elements.nbytes());
  return std::hash<std::string_view>()(bytes) * 31 + std::hash<std::string>()(kind.str());
}

}  // namespace

class ValueTrace::Tracer final : public ExecutionObserver,
                                 public std::enable_shared_from_this<ValueTrace::Tracer> {
 public:
  Tracer(const torch::jit::Graph& graph, Kind kind) : program_(compileRegion(graph)), kind_(kind) {}

  std::vector<c10::IValue> forward(std::vector<c10::IValue> arguments) {
    return Execution(program_, this).run(std::move(arguments));
  }

  bool recordsSlots() const override { return kind_ == Kind::kPlain; }
  void argument(int32_t /*value*/, const c10::IValue& /*content*/) override {}
  void beforeNode(int32_t /*node*/) override {}
  void slotSaved(SlotHooks& slot, const Saved& saved) override {
    slot.keep(std::make_shared<const std::string>("of " + program_->nodes[saved.node].where));
  }
  void dropped(int32_t /*value*/) override {}

  void afterNode(int32_t node, const NodeValues& outcome) override {
    for (const c10::IValue& output : outcome.outputs) {
      forEachTensor(output, [&](const at::Tensor& tensor, int32_t) {
        values_.push_back(traced(node, tensor));
        if (!tensor.requires_grad() || tensor.is_leaf()) return;
        tensor.register_hook([self = shared_from_this(), node](const at::Tensor& gradient) {
          const std::lock_guard<std::mutex> lock(self->mutex_);
          self->gradients_.push_back(self->traced(node, gradient));
        });
      });
    }
  }

  const std::vector<TracedValue>& values() const { return values_; }
  const std::vector<TracedValue>& gradients() const { return gradients_; }

 private:
  TracedValue traced(int32_t node, const at::Tensor& tensor) const {
    return {program_->nodes[node].op, program_->nodes[node].where, fingerprintOf(tensor)};
  }

  std::shared_ptr<const RegionProgram> program_;
  Kind kind_;
  std::mutex mutex_;  ///< of gradients_: the engine has a thread for each device
  std::vector<TracedValue> values_;
  std::vector<TracedValue> gradients_;
};

ValueTrace::ValueTrace(const torch::jit::Graph& graph, Kind kind)
    : tracer_(std::make_shared<Tracer>(graph, kind)) {}

ValueTrace::~ValueTrace() = default;

std::vector<c10::IValue> ValueTrace::forward(std::vector<c10::IValue> arguments) {
  return tracer_->forward(std::move(arguments));
}

const std::vector<TracedValue>& ValueTrace::values() const { return tracer_->values(); }

const std::vector<TracedValue>& ValueTrace::gradients() const { return tracer_->gradients(); }

}  // namespace remat::runtime
