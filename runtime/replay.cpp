#include "runtime/replay.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_set>

#include "runtime/capture.h"
#include "runtime/dropout.h"
#include "runtime/node_call.h"
#include "runtime/profiler_range.h"
#include "runtime/session.h"
#include "runtime/statistics.h"
#include "runtime/tensors.h"

namespace remat::runtime {

/// Ends a session with the graph task that it belongs to: by the engine's final callback, or, where
/// the backward ended with an exception, when the engine drops the callback.
class SessionEnd {
 public:
  SessionEnd(std::weak_ptr<Frame> frame, int graph_task)
      : frame_(std::move(frame)), graph_task_(graph_task) {}
  ~SessionEnd() { end(); }
  SessionEnd(const SessionEnd&) = delete;
  SessionEnd& operator=(const SessionEnd&) = delete;

  void end() {
    if (const auto frame = frame_.lock()) {
      frame->endSession(graph_task_);
    }
    frame_.reset();
  }

 private:
  std::weak_ptr<Frame> frame_;
  int graph_task_;
};

std::shared_ptr<Session> Frame::session() {
  const int graph_task = torch::autograd::get_current_graph_task_id();
  if (graph_task < 0) {
    return nullptr;
  }
  std::shared_ptr<Session> begun;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& entry = sessions_[graph_task];
    if (entry != nullptr) {
      return entry;
    }
    std::vector<int32_t> pending = handles_;
    for (size_t node = 0; node < needed_outputs_.size(); ++node) {
      if (needed_outputs_[node] > 0) {
        for (const int32_t input : program_->nodes[node].replay_inputs) {
          pending[resolve(input)]++;
        }
      }
    }
    begun = entry = std::make_shared<Session>(std::move(pending));
  }
  auto end = std::make_shared<SessionEnd>(weak_from_this(), graph_task);
  torch::autograd::Engine::get_default_engine().queue_callback([end] { end->end(); });
  return begun;
}

void Frame::endSession(int graph_task) {
  std::shared_ptr<Session> ended;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sessions_.find(graph_task);
  if (found != sessions_.end()) {
    ended = std::move(found->second);
    sessions_.erase(found);
  }
}

c10::IValue Materialization::make(int32_t value) {
  {
    const std::lock_guard<std::mutex> lock(frame_.mutex_);
    collect(value);
  }
  std::sort(nodes_.begin(), nodes_.end());
  for (const int32_t node : nodes_) {
    for (const int32_t input : frame_.program().nodes[node].replay_inputs) {
      reads_[frame_.resolve(input)]++;
    }
  }
  reads_[value]++;
  if (!nodes_.empty()) {
    const c10::AutoGradMode no_grad(false);
    const AmbientState::Scope ambient(frame_.ambient_);
    const CapturePause pause;
    const ProfilerRange range(ProfilerRange::Kind::kSegment, frame_.program().described[value]);
    for (const int32_t node : nodes_) {
      runNode(node);
    }
  }
  const auto made = values_.find(value);
  if (made != values_.end()) {
    return made->second.read();
  }
  return frame_.unpackBoundary(value, *boundaries_.at(value));
}

void Materialization::collect(int32_t value) {
  const RegionProgram& program = frame_.program();
  std::unordered_set<int32_t> seen;
  std::unordered_set<int32_t> seen_nodes;
  std::vector<int32_t> wanted{value};
  while (!wanted.empty()) {
    const int32_t v = wanted.back();
    wanted.pop_back();
    if (!seen.insert(v).second || program.is_constant[v] != 0) {
      continue;
    }
    if (program.kept[v] != 0) {
      TORCH_INTERNAL_ASSERT(frame_.boundaries_[v] != nullptr, "boundary ", program.names[v],
                            " is gone");
      boundaries_[v] = frame_.boundaries_[v];
      continue;
    }
    const QueuedValue* cached = session_ != nullptr ? session_->find(v) : nullptr;
    if (cached != nullptr) {
      values_[v] = *cached;
      continue;
    }
    const int32_t node = program.producer[v];
    if (seen_nodes.insert(node).second) {
      nodes_.push_back(node);
      for (const int32_t input : program.nodes[node].replay_inputs) {
        wanted.push_back(frame_.resolve(input));
      }
    }
  }
}

/// False if another thread has made all that is asked of `node` meanwhile.
bool Materialization::claim(int32_t node, std::unique_lock<std::mutex>& lock) {
  if (session_ == nullptr) {
    return true;
  }
  frame_.computed_.wait(lock, [&] { return session_->running.count(node) == 0; });
  bool all_there = true;
  for (const int32_t output : frame_.program().nodes[node].made) {
    if (frame_.program().kept[output] != 0) {
      continue;
    }
    const QueuedValue* cached = session_->find(output);
    if (cached != nullptr) {
      values_[output] = *cached;
    } else if (reads_.count(output) != 0) {
      all_there = false;
    }
  }
  if (!all_there) {
    session_->running.insert(node);
  }
  return !all_there;
}

void Materialization::runNode(int32_t node) {
  {
    std::unique_lock<std::mutex> lock(frame_.mutex_);
    if (!claim(node, lock)) {
      lock.unlock();
      releaseInputs(node);
      return;
    }
  }
  struct Unclaim {
    Frame& frame;
    Session* session;
    int32_t node;
    ~Unclaim() {
      if (session != nullptr) {
        const std::lock_guard<std::mutex> lock(frame.mutex_);
        session->running.erase(node);
        frame.computed_.notify_all();
      }
    }
  };
  const Unclaim unclaim{frame_, session_, node};
  publish(node, execute(node, gatherInputs(node)));
}

namespace {

/// What a replayed norm gets for a running statistic: the copy of what it read, or, where it moved
/// the statistic, a tensor of that kind to throw away. (Not None: a float32 statistic makes the
/// norm compute in float32 where its input is of a lower precision.)
c10::IValue replayStatistic(const c10::IValue& kept, const c10::IValue& input) {
  if (!kept.isTensor() || !kept.toTensor().defined() || !kept.toTensor().is_meta()) {
    return kept;
  }
  const at::Tensor& like = kept.toTensor();
  return at::zeros(like.sizes(), like.options().device(input.toTensor().device()));
}

}  // namespace

std::vector<c10::IValue> Materialization::gatherInputs(int32_t node) {
  const RegionProgram& program = frame_.program();
  const ProgramNode& called = program.nodes[node];
  std::vector<c10::IValue> inputs;
  inputs.reserve(called.inputs.size());
  for (size_t k = 0; k < called.inputs.size(); ++k) {
    const int32_t v = frame_.resolve(called.inputs[k]);
    if (called.hidden_state == HiddenState::kRunningStatistics && (k == 3 || k == 4)) {
      inputs.push_back(replayStatistic(frame_.statistics_.at(node)[k - 3].read(), inputs.at(0)));
    } else if (program.is_constant[v] != 0) {
      inputs.push_back(program.constants[v]);
    } else if (const auto found = boundaries_.find(v); found != boundaries_.end()) {
      inputs.push_back(frame_.unpackBoundary(v, *found->second));
    } else {
      inputs.push_back(values_.at(v).read());
    }
  }
  return inputs;
}

namespace {

/// What the slots marked in `wanted` noted, by slot; the others' places hold undefined tensors.
c10::IValue internalsOf(const ProgramNode& called, const CaptureScope& scope,
                        const std::vector<bool>& wanted) {
  TORCH_CHECK(scope.slots().size() == wanted.size(), "remat: ", called.op, " saved ",
              scope.slots().size(), " tensors where it saved ", wanted.size(), " in the forward");
  c10::List<at::Tensor> internals;
  for (size_t i = 0; i < wanted.size(); ++i) {
    internals.push_back(wanted[i] ? scope.slots()[i]->noted().detach() : at::Tensor());
  }
  return internals;
}

/// Runs a node as the forward did, gradients on and required of the same inputs, and throws the
/// graph away. With `internals`, what it saved comes last.
std::vector<c10::IValue> callWithGradients(const ProgramNode& called,
                                           const std::vector<c10::IValue>& inputs,
                                           const std::vector<bool>& required,
                                           const std::vector<bool>* internals) {
  size_t next = 0;
  std::vector<c10::IValue> leaves;
  leaves.reserve(inputs.size());
  for (const c10::IValue& input : inputs) {
    leaves.push_back(mapTensors(input, [&](const at::Tensor& tensor) {
      return required.at(next++) ? tensor.detach().set_requires_grad(true) : tensor;
    }));
  }
  // What this graph saves is nobody's business, hooks of the caller's least of all.
  CaptureScope scope;
  std::vector<c10::IValue> outputs;
  {
    const c10::AutoGradMode gradients(true);
    outputs = callNode(called, std::move(leaves));
  }
  scope.end();
  c10::IValue saved;
  if (internals != nullptr) {
    saved = internalsOf(called, scope, *internals);
  }
  scope.discard();
  for (c10::IValue& output : outputs) {
    output = mapTensors(output, [](const at::Tensor& tensor) { return tensor.detach(); });
  }
  if (internals != nullptr) {
    outputs.push_back(std::move(saved));
  }
  return outputs;
}

}  // namespace

std::vector<c10::IValue> Materialization::execute(int32_t node,
                                                  std::vector<c10::IValue> inputs) const {
  const ProgramNode& called = frame_.program().nodes[node];
  const ProfilerRange range(ProfilerRange::Kind::kReplay, called.where);
  const StatisticsTimer timer(StatisticsTimer::Kind::kReplay,
                              statisticsEnabled() ? deviceOf(inputs) : c10::Device(c10::kCPU));
  try {
    if (called.is_dropout_mask) {
      const at::Tensor& x = inputs.at(0).toTensor();
      const auto mask = frame_.masks_.find(node);
      if (mask != frame_.masks_.end()) return {mask->second->again(x)};
      return {dropoutMask(x, inputs.at(1).toDouble(), inputs.at(2).toBool(), std::nullopt)};
    }
    const auto flags = frame_.gradient_flags_.find(node);
    if (flags == frame_.gradient_flags_.end()) {
      return callNode(called, std::move(inputs));
    }
    const auto internals = frame_.internals_.find(node);
    return callWithGradients(called, inputs, flags->second,
                             internals == frame_.internals_.end() ? nullptr : &internals->second);
  } catch (c10::Error& error) {
    error.add_context("while Remat recomputed " + called.where);
    throw;
  }
}

void Materialization::publish(int32_t node, std::vector<c10::IValue> outputs) {
  const RegionProgram& program = frame_.program();
  const ProgramNode& called = program.nodes[node];
  std::vector<QueuedValue> garbage;
  std::vector<QueuedValue> queued;
  queued.reserve(outputs.size());
  for (c10::IValue& output : outputs) {
    queued.emplace_back(std::move(output));
  }
  {
    const std::lock_guard<std::mutex> lock(frame_.mutex_);
    for (size_t k = 0; k < called.made.size(); ++k) {
      const int32_t output = called.made[k];
      if (program.kept[output] != 0) {
        continue;
      }
      if (session_ != nullptr && session_->isPending(output) && program.dropped[output] == 0) {
        session_->store(output, queued[k]);
      }
      if (reads_.count(output) != 0) {
        values_[output] = std::move(queued[k]);
      }
    }
    if (session_ != nullptr && session_->noteReplayed(node)) {
      for (const int32_t input : called.replay_inputs) {
        garbage.push_back(session_->release(frame_.resolve(input)));
      }
    }
  }
  releaseInputs(node);
}

void Materialization::releaseInputs(int32_t node) {
  for (const int32_t input : frame_.program().nodes[node].replay_inputs) {
    const int32_t v = frame_.resolve(input);
    if (--reads_[v] == 0) {
      reads_.erase(v);
      values_.erase(v);
      boundaries_.erase(v);
    }
  }
}

}  // namespace remat::runtime
