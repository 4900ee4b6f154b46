#include "runtime/frame.h"

#include "runtime/replay.h"
#include "runtime/session.h"
#include "runtime/tensors.h"

namespace remat::runtime {

Frame::Frame(std::shared_ptr<const RegionProgram> program)
    : program_(std::move(program)), ambient_(AmbientState::current()) {
  const size_t values = program_->valueCount();
  redirect_.assign(values, -1);
  need_.assign(values, 0);
  handles_.assign(values, 0);
  boundaries_.resize(values);
  needed_outputs_.assign(program_->nodes.size(), 0);
}

Frame::~Frame() = default;

void Frame::holdBoundary(int32_t value, const c10::IValue& content) {
  if (boundaries_[value] != nullptr) {
    return;
  }
  auto boundary = std::make_shared<const Boundary>(content);
  const std::lock_guard<std::mutex> lock(mutex_);
  boundaries_[value] = std::move(boundary);
}

void Frame::endBoundary(int32_t value) {
  Garbage garbage;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (need_[value] == 0) {
    garbage.push_back(std::move(boundaries_[value]));
  }
}

void Frame::endForward() {
  Garbage garbage;
  const std::lock_guard<std::mutex> lock(mutex_);
  forward_ended_ = true;
  for (size_t value = 0; value < boundaries_.size(); ++value) {
    if (need_[value] == 0 && boundaries_[value] != nullptr) {
      garbage.push_back(std::move(boundaries_[value]));
    }
  }
}

void Frame::addHandle(int32_t value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  handles_[value]++;
  raiseNeed(value);
}

void Frame::dropHandle(int32_t value) {
  Garbage garbage;
  const std::lock_guard<std::mutex> lock(mutex_);
  handles_[value]--;
  lowerNeed(value, garbage);
}

void Frame::raiseNeed(int32_t value) {
  std::vector<int32_t> raised{value};
  while (!raised.empty()) {
    const int32_t v = raised.back();
    raised.pop_back();
    if (need_[v]++ > 0 || program_->kept[v] != 0) {
      continue;
    }
    const int32_t node = program_->producer[v];
    if (needed_outputs_[node]++ > 0) {
      continue;
    }
    for (const int32_t input : program_->nodes[node].replay_inputs) {
      raised.push_back(resolve(input));
    }
  }
}

void Frame::lowerNeed(int32_t value, Garbage& garbage) {
  std::vector<int32_t> lowered{value};
  while (!lowered.empty()) {
    const int32_t v = lowered.back();
    lowered.pop_back();
    if (--need_[v] > 0) {
      continue;
    }
    if (program_->kept[v] != 0) {
      if (forward_ended_) {
        garbage.push_back(std::move(boundaries_[v]));
      }
      continue;
    }
    const int32_t node = program_->producer[v];
    if (--needed_outputs_[node] > 0) {
      continue;
    }
    for (const int32_t input : program_->nodes[node].replay_inputs) {
      lowered.push_back(resolve(input));
    }
  }
}

c10::IValue Frame::unpackBoundary(int32_t value, const Boundary& boundary) const {
  try {
    // First the wait: where a caller has installed hooks, unpacking may copy.
    boundary.streams.wait();
    c10::IValue content = boundary.packed.unpackWithStrides();
    boundary.streams.noteReading(content);
    return content;
  } catch (c10::Error& error) {
    error.add_context("remat: " + program_->described[value] +
                      " was written in place between the forward and the backward, which has to "
                      "recompute from it. "
                      "Write to a copy of it, or plan with that value kept");
    throw;
  }
}

at::Tensor Frame::use(int32_t value, int32_t element) {
  const std::shared_ptr<Session> running = session();
  c10::IValue content = Materialization(*this, running.get()).make(value);
  QueuedValue dropped;
  if (running != nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    dropped = running->release(value);
  }
  return tensorAt(content, element);
}

}  // namespace remat::runtime
