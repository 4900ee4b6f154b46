#include "runtime/recording.h"

#include <ATen/core/ivalue_inl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "ir/location.h"
#include "ir/region_order.h"
#include "runtime/device.h"
#include "runtime/device_allocations.h"
#include "runtime/execution.h"
#include "runtime/memory_statistics.h"
#include "runtime/step_clock.h"
#include "runtime/tensors.h"

namespace remat::runtime {
namespace {

std::string describeType(const c10::IValue& value) {
  std::ostringstream text;
  if (value.isTensor() && value.toTensor().defined()) {
    text << c10::toString(value.toTensor().scalar_type()) << value.toTensor().sizes();
  } else {
    text << value.tagKind();
  }
  return text.str();
}

}  // namespace

class Recording::Recorder final : public ExecutionObserver,
                                  public SlotObserver,
                                  public AllocationListener,
                                  public std::enable_shared_from_this<Recording::Recorder> {
 public:
  Recorder(const torch::jit::Graph& graph, c10::Device device)
      : program_(compileRegion(graph)), clock_(device) {
    const ir::RegionOrder order = ir::regionOrder(*program_->graph);
    for (const auto& ordered : order.nodes) {
      locations_.push_back(ir::locate(*ordered.node));
    }
    profile_.values.resize(program_->valueCount());
    for (size_t v = 0; v < program_->valueCount(); ++v) {
      profile_.values[v].name = program_->names[v];
      profile_.values[v].tensor = program_->tensor[v] != 0;
    }
  }

  std::vector<c10::IValue> forward(std::vector<c10::IValue> arguments) {
    auto outputs = Execution(program_, this).run(std::move(arguments));
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const c10::IValue& output : outputs) {
      forEachTensor(output, [&](const at::Tensor& tensor, int32_t) {
        setRole(storageOf(tensor), ir::StorageRole::kOutput);
      });
    }
    beginBackwardStep(-1);
    return outputs;
  }

  /// The step begins, on a device.
  void begin() { begin_ = clock_.now(); }

  ir::Profile finish() {
    const std::lock_guard<std::mutex> lock(mutex_);
    readClock();
    const auto end = static_cast<int32_t>(profile_.nodes.size());
    for (auto& value : profile_.values) {
      if (value.producer >= 0 && value.last_use < 0) {
        value.last_use = end;
      }
    }
    return profile_;
  }

  // --- ExecutionObserver ---

  void argument(int32_t value, const c10::IValue& content) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    noteValue(value, content);
  }

  void beforeNode(int32_t node) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ir::NodeProfile entry;
    entry.program_index = node;
    entry.op = program_->nodes[node].op;
    entry.module_path = locations_[node].module_path;
    entry.source = locations_[node].source;
    profile_.nodes.push_back(std::move(entry));
    events_ = &profile_.nodes.back().events;
    instants_.emplace_back(clock_.now(), -1);
  }

  void afterNode(int32_t /*node*/, const NodeValues& values) override {
    const int32_t end = clock_.now();
    const std::lock_guard<std::mutex> lock(mutex_);
    instants_.back().second = end;
    const auto index = static_cast<int32_t>(profile_.nodes.size()) - 1;
    ir::NodeProfile& entry = profile_.nodes.back();
    for (const int32_t input : values.input_ids) {
      if (program_->is_constant[input] == 0) {
        entry.inputs.push_back(input);
      }
    }
    for (size_t i = 0; i < values.output_ids.size(); ++i) {
      const int32_t value = values.output_ids[i];
      entry.outputs.push_back(value);
      profile_.values[value].producer = index;
      noteValue(value, values.outputs[i]);
      forEachTensor(values.outputs[i],
                    [&](const at::Tensor& tensor, int32_t) { hookGraph(tensor.grad_fn(), index); });
    }
  }

  void slotSaved(SlotHooks& slot, const Saved& what) override {
    const at::Tensor& saved = slot.noted();
    int32_t id = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ir::SlotProfile entry;
      entry.node = static_cast<int32_t>(profile_.nodes.size()) - 1;
      entry.value = what.value;
      const bool holds = saved.defined() && saved.has_storage() && saved.storage().nbytes() > 0;
      if (holds && what.external == nullptr) {
        entry.storage = storageOf(saved);
        entry.cast_of = what.cast_of;
        // No node's internals: a cast goes with the value it was made of.
        if (what.value < 0) {
          setRole(entry.storage,
                  what.cast_of >= 0 ? ir::StorageRole::kOutput : ir::StorageRole::kInternal);
        }
      }
      id = static_cast<int32_t>(profile_.slots.size());
      profile_.slots.push_back(entry);
    }
    const auto name = std::make_shared<const std::string>(
        what.value < 0 ? "a tensor of the recorded step" : program_->names[what.value]);
    if (what.external != nullptr) {
      slot.keepCast(*what.external, name);  // as a region does
    } else {
      slot.keep(name);
    }
    slot.observe(shared_from_this(), id);
  }

  void dropped(int32_t value) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    profile_.values[value].last_use = static_cast<int32_t>(profile_.nodes.size()) - 1;
  }

  // --- SlotObserver ---

  void slotUnpacked(int32_t slot) override { note(ir::EventKind::kUnpack, slot); }

  void slotReleased(int32_t slot) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (events_ == nullptr || !in_backward_) {
      return;
    }
    if (!applied_) {
      applied_ = true;
      events_->push_back({ir::EventKind::kApplyEnd, -1});
    }
    events_->push_back({ir::EventKind::kRelease, slot});
  }

  // --- AllocationListener ---

  void allocated(const void* data, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto id = static_cast<int32_t>(profile_.storages.size());
    profile_.storages.push_back({static_cast<int64_t>(bytes), ir::StorageRole::kOther});
    const auto [entry, is_new] = live_.try_emplace(data, id);
    if (events_ != nullptr) {
      // Freed by a thread that a device's allocations aren't told of.
      if (!is_new) events_->push_back({ir::EventKind::kFree, entry->second});
      events_->push_back({ir::EventKind::kAlloc, id});
    }
    entry->second = id;
  }

  void freed(const void* data, size_t /*bytes*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = live_.find(data);
    if (found == live_.end()) {
      return;
    }
    if (events_ != nullptr) {
      events_->push_back({ir::EventKind::kFree, found->second});
    }
    live_.erase(found);
  }

  /// An autograd node made by the executed node `node` begins.
  void autogradNodeBegins(int32_t node) {
    noteBackwardsEnd();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (in_backward_) beginBackwardStep(node);
  }

 private:
  /// Marks the begin of an autograd node. (A hook after it would keep its gradients alive.)
  struct BeginHook final : public torch::autograd::FunctionPreHook {
    BeginHook(std::shared_ptr<Recorder> recorder, int32_t node)
        : recorder(std::move(recorder)), node(node) {}
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& gradients) override {
      recorder->autogradNodeBegins(node);
      return gradients;
    }
    std::shared_ptr<Recorder> recorder;
    int32_t node;
  };

  void note(ir::EventKind kind, int32_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (events_ != nullptr) {
      events_->push_back({kind, id});
    }
  }

  /// Once in a backward: its end is noted by the engine, before anything waits for the device.
  void noteBackwardsEnd() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (end_is_noted_) return;
      end_is_noted_ = true;
    }
    torch::autograd::Engine::get_default_engine().queue_callback([self = shared_from_this()] {
      const std::lock_guard<std::mutex> lock(self->mutex_);
      self->end_is_noted_ = false;
      self->backward_end_ = self->clock_.now();
    });
  }

  void beginBackwardStep(int32_t node) {
    in_backward_ = true;
    applied_ = false;
    profile_.backward.emplace_back();
    profile_.backward.back().node = node;
    events_ = &profile_.backward.back().events;
    backward_instants_.push_back(clock_.now());
  }

  /// A step of the backward lasts until the next begins. What comes after the last belongs to none.
  void readClock() {
    for (size_t i = 0; i < instants_.size(); ++i) {
      const auto [begin, end] = instants_[i];
      if (end >= 0) profile_.nodes[i].seconds = clock_.seconds(begin, end);
    }
    if (begin_ >= 0 && backward_end_ >= 0) {
      profile_.step_seconds = clock_.seconds(begin_, backward_end_);
    }
    backward_instants_.push_back(std::max(backward_end_, backward_instants_.back()));
    for (size_t i = 0; i < profile_.backward.size(); ++i) {
      profile_.backward[i].seconds =
          std::max(0.0, clock_.seconds(backward_instants_[i], backward_instants_[i + 1]));
    }
  }

  /// Hooks every autograd node that is new since the last executed node.
  void hookGraph(const std::shared_ptr<torch::autograd::Node>& root, int32_t index) {
    std::vector<std::shared_ptr<torch::autograd::Node>> found{root};
    while (!found.empty()) {
      const auto node = std::move(found.back());
      found.pop_back();
      if (node == nullptr || !hooked_.insert(node.get()).second) {
        continue;
      }
      node->add_pre_hook(std::make_unique<BeginHook>(shared_from_this(), index));
      for (const auto& edge : node->next_edges()) {
        found.push_back(edge.function);
      }
    }
  }

  int32_t storageOf(const at::Tensor& tensor) {
    const auto found = live_.find(tensor.storage().data());
    if (found != live_.end()) {
      return found->second;
    }
    const auto [entry, is_new] = external_.emplace(tensor.storage().unsafeGetStorageImpl(),
                                                   static_cast<int32_t>(profile_.storages.size()));
    if (is_new) {
      profile_.storages.push_back({0, ir::StorageRole::kExternal});
    }
    return entry->second;
  }

  /// A storage that is a value's and internal at once can't be decided on: it counts as an output.
  void setRole(int32_t storage, ir::StorageRole role) {
    auto& present = profile_.storages[storage].role;
    if (present == ir::StorageRole::kOther) {
      present = role;
    } else if (present != ir::StorageRole::kExternal && present != role) {
      present = ir::StorageRole::kOutput;
    }
  }

  void noteValue(int32_t value, const c10::IValue& content) {
    auto& entry = profile_.values[value];
    entry.type = describeType(content);
    entry.storages.clear();
    forEachTensor(content, [&](const at::Tensor& tensor, int32_t) {
      if (tensor.storage().nbytes() == 0) {
        return;
      }
      const int32_t storage = storageOf(tensor);
      setRole(storage, ir::StorageRole::kValue);
      if (std::find(entry.storages.begin(), entry.storages.end(), storage) ==
          entry.storages.end()) {
        entry.storages.push_back(storage);
      }
    });
  }

  std::shared_ptr<const RegionProgram> program_;
  std::vector<ir::Location> locations_;  ///< by program node
  std::mutex mutex_;
  ir::Profile profile_;
  std::vector<ir::Event>* events_ = nullptr;  ///< of the node or backward step that runs now
  StepClock clock_;
  std::vector<std::pair<int32_t, int32_t>> instants_;  ///< of nodes: begin and end, -1: threw
  std::vector<int32_t> backward_instants_;             ///< of steps: begin
  int32_t begin_ = -1;                                 ///< the step's; -1: on the CPU
  int32_t backward_end_ = -1;                          ///< the last backward's; -1: none is over
  bool end_is_noted_ = false;                          ///< by the backward that runs now
  bool in_backward_ = false;
  bool applied_ = false;
  std::unordered_map<const void*, int32_t> live_;  ///< storages of this step by address
  std::unordered_map<const c10::StorageImpl*, int32_t> external_;
  std::unordered_set<torch::autograd::Node*> hooked_;
};

Recording::Recording(const torch::jit::Graph& graph, c10::Device device)
    : device_(device), recorder_(std::make_shared<Recorder>(graph, device)) {}

Recording::~Recording() {
  if (device_.is_cpu()) setAllocationListener(nullptr);
}

void Recording::start(double head_start) {
  if (device_.is_cpu()) {
    setAllocationListener(recorder_.get());
  } else {
    // Scopes nest: the last one has to end before the next one begins.
    allocations_.reset();
    allocations_ = std::make_unique<DeviceAllocationScope>(device_, *recorder_);
    const DeviceInterface* known = findDevice(device_.type());
    if (known != nullptr && head_start > 0) known->occupy(device_, head_start);
    recorder_->begin();
  }
}

std::vector<c10::IValue> Recording::forward(std::vector<c10::IValue> arguments) {
  return recorder_->forward(std::move(arguments));
}

ir::Profile Recording::finish() {
  if (device_.is_cpu()) setAllocationListener(nullptr);
  allocations_.reset();
  return recorder_->finish();
}

}  // namespace remat::runtime
