#include "runtime/execution.h"

#include <ATen/core/ivalue_inl.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <unordered_set>

#include "runtime/autotuning.h"
#include "runtime/dropout.h"
#include "runtime/node_call.h"
#include "runtime/statistics.h"
#include "runtime/tensors.h"

namespace remat::runtime {

Execution::Execution(std::shared_ptr<const RegionProgram> program, ExecutionObserver* observer)
    : program_(std::move(program)), observer_(observer) {
  env_.resize(program_->valueCount());
  redirect_.assign(program_->valueCount(), -1);
}

std::vector<c10::IValue> Execution::run(std::vector<c10::IValue> arguments) {
  TORCH_CHECK(arguments.size() == program_->inputs.size(), "remat: the region takes ",
              program_->inputs.size(), " arguments but was given ", arguments.size());
  capture_ = c10::GradMode::is_enabled();
  if (capture_) {
    installCapture();
    caller_has_hooks_ = CaptureScope::callerHasHooks();
    if (!recordsSlots()) {
      frame_ = std::make_shared<Frame>(program_);
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const int32_t value = program_->inputs[i];
    env_[value] = std::move(arguments[i]);
    bind(value, env_[value]);
    if (observer_ != nullptr) {
      observer_->argument(value, env_[value]);
    }
  }
  runNodes(program_->body);
  std::vector<c10::IValue> results;
  for (const int32_t output : program_->outputs) {
    results.push_back(content(output));
  }
  env_.clear();
  if (frame_ != nullptr) {
    frame_->endForward();
  }
  return results;
}

void Execution::runNodes(const std::vector<int32_t>& nodes) {
  for (const int32_t index : nodes) {
    const ProgramNode& node = program_->nodes[index];
    if (node.is_mark) {
      continue;
    }
    if (node.form == ir::NodeForm::kBranch) {
      runBranch(index);
    } else {
      runCall(index);
    }
    for (const int32_t value : node.dead_after) {
      drop(value);
    }
    if (frame_ != nullptr) {
      for (const int32_t value : node.boundaries_ending) {
        frame_->endBoundary(value);
      }
    }
  }
}

void Execution::runBranch(int32_t index) {
  const ProgramNode& node = program_->nodes[index];
  const ProgramNode::Arm& arm = node.arms[content(node.inputs.at(0)).toBool() ? 0 : 1];
  for (const int32_t value : arm.dead_on_entry) {
    drop(value);
  }
  runNodes(arm.nodes);
  std::vector<c10::IValue> results;
  for (const int32_t output : arm.outputs) {
    results.push_back(content(output));
  }
  for (size_t i = 0; i < arm.outputs.size(); ++i) {
    redirect_[node.outputs[i]] = resolve(arm.outputs[i]);
    if (frame_ != nullptr) {
      frame_->redirect(node.outputs[i], arm.outputs[i]);
    }
    env_[node.outputs[i]] = std::move(results[i]);
  }
  // What the arm returned has a new name now; the old one goes unless it is in use after the
  // branch.
  for (const int32_t value : arm.dead_on_exit) {
    env_[value] = c10::IValue();
  }
}

void Execution::runCall(int32_t index) {
  const ProgramNode& node = program_->nodes[index];
  std::vector<c10::IValue> inputs = std::move(stack_);
  inputs.reserve(node.inputs.size());
  for (const int32_t value : node.inputs) {
    inputs.push_back(content(value));
  }
  if (observer_ != nullptr) {
    observer_->beforeNode(index);
  }
  if (!capture_ || node.is_get_attribute) {
    finishCall(index, call(index, std::move(inputs)));
    return;
  }
  if (frame_ != nullptr && node.recomputable) {
    holdBoundaries(node);
    keepGradientFlags(index, inputs);
    if (at::globalContext().benchmarkCuDNN()) {
      checkAutotuning(node.op, node.where, deviceOf(inputs));
    }
  }
  CaptureScope scope(caller_has_hooks_);
  std::vector<c10::IValue> outputs = call(index, std::move(inputs));
  scope.end();
  finishCall(index, std::move(outputs));
  decideSlots(index, scope);
}

void Execution::finishCall(int32_t index, std::vector<c10::IValue> outputs) {
  const ProgramNode& node = program_->nodes[index];
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    c10::IValue& output = env_[node.outputs[i]];
    output = std::move(outputs[i]);
    bind(node.outputs[i], output);
  }
  outputs.clear();
  stack_ = std::move(outputs);
  copyStatistics(index);
  if (observer_ != nullptr) {
    notifyAfter(index);
  }
}

void Execution::notifyAfter(int32_t index) {
  const ProgramNode& node = program_->nodes[index];
  ExecutionObserver::NodeValues values;
  for (const int32_t value : node.inputs) {
    values.input_ids.push_back(resolve(value));
    values.inputs.push_back(content(value));
  }
  for (const int32_t value : node.outputs) {
    values.output_ids.push_back(value);
    values.outputs.push_back(content(value));
  }
  observer_->afterNode(index, values);
}

std::vector<c10::IValue> Execution::call(int32_t index, std::vector<c10::IValue> inputs) {
  const ProgramNode& node = program_->nodes[index];
  const StatisticsTimer timer(StatisticsTimer::Kind::kForward,
                              statisticsEnabled() ? deviceOf(inputs) : c10::Device(c10::kCPU));
  try {
    if (node.is_dropout_mask && frame_ != nullptr && node.recomputable) {
      return drawMask(index, inputs);
    }
    return callNode(node, std::move(inputs));
  } catch (c10::Error& error) {
    error.add_context("in " + node.op + " at " + node.where);
    throw;
  }
}

std::vector<c10::IValue> Execution::drawMask(int32_t index,
                                             const std::vector<c10::IValue>& inputs) {
  const at::Tensor& x = inputs.at(0).toTensor();
  const double p = inputs.at(1).toDouble();
  const bool train = inputs.at(2).toBool();
  if (p == 0 || p == 1 || !train || x.numel() == 0) {
    return {dropoutMask(x, p, train, std::nullopt)};
  }
  at::Tensor mask;
  frame_->keepMask(index, std::make_unique<RepeatableMask>(x, p, mask));
  return {mask};
}

void Execution::copyStatistics(int32_t index) {
  const ProgramNode& node = program_->nodes[index];
  if (frame_ == nullptr || !node.recomputable ||
      node.hidden_state != HiddenState::kRunningStatistics) {
    return;
  }
  const bool moves = content(node.inputs.at(5)).toBool();
  const CapturePause pause;
  const c10::AutoGradMode no_grad(false);
  std::vector<QueuedValue> copies;
  for (const size_t k : {3, 4}) {
    const c10::IValue& statistic = content(node.inputs.at(k));
    if (!statistic.isTensor() || !statistic.toTensor().defined()) {
      copies.emplace_back(statistic);
    } else if (moves) {
      copies.emplace_back(at::empty_like(statistic.toTensor(), at::device(at::kMeta)));
    } else {
      copies.emplace_back(statistic.toTensor().clone());
    }
  }
  frame_->keepStatistics(index, std::move(copies));
}

void Execution::bind(int32_t value, const c10::IValue& bound) {
  if (frame_ != nullptr && program_->recomputes && program_->kept[value] != 0 &&
      program_->tensor[value] != 0) {
    noteKeptStorages(bound);
  }
}

void Execution::holdBoundaries(const ProgramNode& node) {
  for (const int32_t input : node.replay_inputs) {
    const int32_t value = resolve(input);
    if (program_->boundary[value] != 0) {
      frame_->holdBoundary(value, content(input));
    }
  }
}

void Execution::keepGradientFlags(int32_t index, const std::vector<c10::IValue>& inputs) {
  if (!program_->nodes[index].kernel_by_gradients && program_->nodes[index].internals < 0) {
    return;
  }
  std::vector<bool> flags;
  for (const c10::IValue& input : inputs) {
    forEachTensor(
        input, [&](const at::Tensor& tensor, int32_t) { flags.push_back(tensor.requires_grad()); });
  }
  frame_->keepGradientFlags(index, std::move(flags));
}

void Execution::drop(int32_t value) {
  env_[value] = c10::IValue();
  if (observer_ != nullptr) {
    observer_->dropped(resolve(value));
  }
}

void Execution::decideSlots(int32_t index, const CaptureScope& scope) {
  const ProgramNode& node = program_->nodes[index];
  if (frame_ == nullptr || node.internals < 0) {
    for (SlotHooks* slot : scope.slots()) {
      decideSlot(index, *slot);
    }
    return;
  }
  std::vector<bool> internals;
  for (size_t i = 0; i < scope.slots().size(); ++i) {
    SlotHooks& slot = *scope.slots()[i];
    const at::Tensor saved = slot.noted();
    internals.push_back(isInternal(node, saved));
    if (internals.back()) {
      slot.handle(frame_, node.internals, static_cast<int32_t>(i), saved);
    } else {
      decideSlot(index, slot);
    }
  }
  frame_->keepInternals(index, std::move(internals));
}

/// Whether `saved` is the operator's own, shown by no value.
bool Execution::isInternal(const ProgramNode& node, const at::Tensor& saved) const {
  return saved.defined() && saved.layout() == at::kStrided && saved.has_storage() &&
         saved.storage().nbytes() > 0 && match(node, saved).value < 0;
}

void Execution::decideSlot(int32_t index, SlotHooks& slot) {
  const ProgramNode& node = program_->nodes[index];
  const Match found = match(node, slot.noted());
  const int32_t producer = found.value < 0 ? -1 : program_->producer[found.value];
  const bool external = producer < 0 || program_->nodes[producer].is_get_attribute;
  if (recordsSlots()) {
    observer_->slotSaved(slot, {index, found.cast ? -1 : found.value, found.cast ? found.value : -1,
                                found.cast && external ? found.source : nullptr});
    return;
  }
  const bool internal = found.value < 0;
  SlotHooks::Name name(program_, internal ? &node.inside : &program_->described[found.value]);
  const bool recomputable =
      !internal && program_->kept[found.value] == 0 && !isKeptStorage(*found.source);
  if (found.cast) {
    if (recomputable) {
      slot.handleCast(frame_, found.value, found.element, *found.source);
    } else if (external) {
      slot.keepCast(*found.source, std::move(name));
    } else {
      slot.keep(std::move(name));
    }
  } else if (recomputable) {
    slot.handle(frame_, found.value, found.element, *found.source);
  } else if (found.argument && !node.writes && slot.noted().is_same(*found.source)) {
    slot.keepArgument(std::move(name));
  } else {
    slot.keep(std::move(name));
  }
}

namespace {

/// Whether an autograd node belongs to an operator whose result is a view of its first argument, of
/// all of it.
bool isOfWholeView(const std::string& autograd_node) {
  static const std::unordered_set<std::string> kNames = {
      "ViewBackward0",      "UnsafeViewBackward0", "ReshapeAliasBackward0", "TBackward0",
      "TransposeBackward0", "PermuteBackward0",    "ExpandBackward0",       "UnsqueezeBackward0",
      "SqueezeBackward0",   "SqueezeBackward1",    "SqueezeBackward2"};
  return kNames.count(autograd_node) != 0;
}

/// Whether `saved` is what autocast made of `source`, or a view of it (linear saves its input with
/// fewer dimensions, and its weight transposed): behind the views' gradient functions lies that of
/// a cast whose only input is `source`.
bool isCastOf(const at::Tensor& saved, const at::Tensor& source) {
  if (saved.scalar_type() == source.scalar_type() || !source.requires_grad() ||
      saved.grad_fn() == nullptr || saved.device() != source.device() ||
      saved.storage().nbytes() != static_cast<size_t>(source.numel()) * saved.itemsize()) {
    return false;
  }
  const torch::autograd::Node* node = saved.grad_fn().get();
  while (node != nullptr && isOfWholeView(node->name())) node = node->next_edge(0).function.get();
  return node != nullptr && node->name() == "ToCopyBackward0" && node->num_outputs() == 1 &&
         node->next_edge(0).is_valid() &&
         node->next_edge(0) == torch::autograd::impl::gradient_edge(source);
}

}  // namespace

Execution::Match Execution::match(const ProgramNode& node, const at::Tensor& saved) const {
  Match best;
  if (!saved.defined() || !saved.has_storage() || saved.storage().nbytes() == 0) {
    return best;
  }
  bool exact = false;
  const auto look = [&](int32_t value, bool argument) {
    forEachTensor(content(value), [&](const at::Tensor& candidate, int32_t element) {
      if (exact || element == kNested) {
        return;
      }
      if (isViewAs(saved, candidate)) {
        exact = saved.sizes() == candidate.sizes() && saved.strides() == candidate.strides() &&
                saved.storage_offset() == candidate.storage_offset();
        if (exact || best.value < 0 || best.cast) {
          best = {resolve(value), element, false, argument, &candidate};
        }
      } else if (best.value < 0 && isCastOf(saved, candidate)) {
        best = {resolve(value), element, true, argument, &candidate};
      }
    });
  };
  for (const int32_t value : node.inputs) {
    look(value, true);
  }
  for (const int32_t value : node.outputs) {
    look(value, false);
  }
  return best;
}

void Execution::noteKeptStorages(const c10::IValue& kept) {
  forEachTensor(kept, [&](const at::Tensor& tensor, int32_t) {
    const auto storage = tensor.storage().getWeakStorageImpl();
    kept_storages_.emplace(tensor.storage().unsafeGetStorageImpl(), storage);
  });
}

bool Execution::isKeptStorage(const at::Tensor& tensor) const {
  return kept_storages_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
}

}  // namespace remat::runtime
