#include <algorithm>

#include "tests/passes/synthetic.h"

namespace remat::testing {

using ir::Event;
using ir::EventKind;
using ir::StorageRole;

int32_t ProfileBuilder::newStorage(int64_t bytes, StorageRole role) {
  input_.profile.storages.push_back({bytes, role});
  holders_.push_back(0);
  gradient_.push_back(-1);
  return static_cast<int32_t>(input_.profile.storages.size()) - 1;
}

int32_t ProfileBuilder::argument(int64_t bytes, bool parameter) {
  ir::ValueProfile value;
  value.name = "argument" + std::to_string(input_.profile.values.size());
  value.tensor = true;
  value.storages = {newStorage(bytes, StorageRole::kExternal)};
  input_.profile.values.push_back(value);
  parameter_.push_back(parameter);
  return static_cast<int32_t>(input_.profile.values.size()) - 1;
}

int32_t ProfileBuilder::add(const Op& op) {
  const auto node_id = static_cast<int32_t>(input_.profile.nodes.size());
  Details details;
  details.op = op;
  const auto first = static_cast<int32_t>(input_.profile.values.size());
  auto output = [&](std::vector<int32_t> storages) {
    ir::ValueProfile value;
    value.name = op.name + std::to_string(input_.profile.values.size());
    value.tensor = true;
    value.producer = node_id;
    value.last_use = -1;
    value.storages = std::move(storages);
    details.outputs.push_back(static_cast<int32_t>(input_.profile.values.size()));
    input_.profile.values.push_back(value);
    parameter_.push_back(0);
  };
  for (int64_t bytes : op.output_bytes) output({newStorage(bytes, StorageRole::kValue)});
  for (int32_t position : op.views_of) {
    output(input_.profile.values[op.inputs[position]].storages);
  }
  if (op.list) {
    std::vector<int32_t> all;
    for (int32_t value : op.inputs) {
      const std::vector<int32_t>& held = input_.profile.values[value].storages;
      all.insert(all.end(), held.begin(), held.end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    output(all);
  }
  ir::NodeProfile node;
  node.program_index = node_id;
  node.op = "aten::" + op.name;
  node.seconds = op.seconds;
  node.inputs = op.inputs;
  node.outputs = details.outputs;
  for (int32_t value : op.inputs) input_.profile.values[value].last_use = node_id;
  for (int32_t value : op.saved) {
    details.slots.push_back(static_cast<int32_t>(input_.profile.slots.size()));
    input_.profile.slots.push_back({node_id, value, input_.profile.values[value].storages.front()});
  }
  for (int32_t value : op.saved_casts) {
    const ir::ValueProfile& source = input_.profile.values[value];
    if (source.producer < 0) continue;
    const int64_t bytes = input_.profile.storages[source.storages.front()].bytes;
    details.slots.push_back(static_cast<int32_t>(input_.profile.slots.size()));
    const int32_t cast = newStorage((bytes + 1) / 2, StorageRole::kOutput);
    input_.profile.slots.push_back({node_id, -1, cast, value});
  }
  if (op.internal_bytes > 0) {
    details.slots.push_back(static_cast<int32_t>(input_.profile.slots.size()));
    input_.profile.slots.push_back(
        {node_id, -1, newStorage(op.internal_bytes, StorageRole::kInternal)});
  }
  input_.profile.nodes.push_back(node);
  input_.replayable.push_back(op.replayable);
  ops_.push_back(details);
  return first;
}

void ProfileBuilder::saveOpaquely(int32_t value) {
  ops_.back().slots.push_back(static_cast<int32_t>(input_.profile.slots.size()));
  input_.profile.slots.push_back(
      {static_cast<int32_t>(ops_.size()) - 1, -1, input_.profile.values[value].storages.front()});
}

void ProfileBuilder::alloc(std::vector<Event>& events, int32_t storage) {
  events.push_back({EventKind::kAlloc, storage});
  live_ += input_.profile.storages[storage].bytes;
  input_.profile.peak_bytes = std::max(input_.profile.peak_bytes, live_);
}

void ProfileBuilder::free(std::vector<Event>& events, int32_t storage) {
  events.push_back({EventKind::kFree, storage});
  live_ -= input_.profile.storages[storage].bytes;
}

void ProfileBuilder::release(std::vector<Event>& events, int32_t storage) {
  const StorageRole role = input_.profile.storages[storage].role;
  if (role != StorageRole::kExternal && --holders_[storage] == 0) free(events, storage);
}

void ProfileBuilder::close(const std::vector<int32_t>& outputs) {
  for (int32_t value : outputs) {
    ir::ValueProfile& profile = input_.profile.values[value];
    profile.last_use = static_cast<int32_t>(ops_.size());
    for (int32_t storage : profile.storages) {
      StorageRole& role = input_.profile.storages[storage].role;
      if (role == StorageRole::kValue) role = StorageRole::kOutput;
    }
  }
}

void ProfileBuilder::recordForward() {
  ir::Profile& profile = input_.profile;
  for (size_t node = 0; node < ops_.size(); ++node) {
    const Details& details = ops_[node];
    std::vector<Event>& events = profile.nodes[node].events;
    const int32_t scratch = details.op.scratch_bytes > 0
                                ? newStorage(details.op.scratch_bytes, StorageRole::kOther)
                                : -1;
    if (scratch >= 0) alloc(events, scratch);
    for (size_t i = 0; i < details.op.output_bytes.size(); ++i) {
      alloc(events, profile.values[details.outputs[i]].storages.front());
    }
    for (int32_t slot : details.slots) {
      const int32_t storage = profile.slots[slot].storage;
      const bool own = profile.storages[storage].role == StorageRole::kInternal ||
                       profile.slots[slot].cast_of >= 0;
      if (own) alloc(events, storage);
      holders_[storage]++;
    }
    if (scratch >= 0) free(events, scratch);
    for (int32_t output : details.outputs) {
      for (int32_t storage : profile.values[output].storages) holders_[storage]++;
    }
    auto dropIfDead = [&](int32_t value) {
      const ir::ValueProfile& dead = profile.values[value];
      if (dead.producer < 0) return;
      const auto end = static_cast<size_t>(std::max(dead.last_use, dead.producer));
      if (end != node) return;
      for (int32_t storage : dead.storages) release(events, storage);
    };
    for (int32_t output : details.outputs) dropIfDead(output);
    std::vector<int32_t> inputs = details.op.inputs;
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    for (int32_t input : inputs) dropIfDead(input);
  }
}

/// Unpack, gradients of the inputs, end, slots and the results' gradients go.
void ProfileBuilder::runBackward(int32_t node) {
  ir::Profile& profile = input_.profile;
  const Details& details = ops_[node];
  ir::BackwardStep step;
  step.node = node;
  step.seconds = 2 * details.op.seconds;
  for (int32_t slot : details.slots) step.events.push_back({EventKind::kUnpack, slot});
  const int32_t scratch =
      details.op.scratch_bytes > 0 ? newStorage(details.op.scratch_bytes, StorageRole::kOther) : -1;
  if (scratch >= 0) alloc(step.events, scratch);
  std::vector<int32_t> added;
  const bool moves_bytes = !details.op.output_bytes.empty();
  for (int32_t input : details.op.inputs) {
    const ir::ValueProfile& value = profile.values[input];
    if (!moves_bytes || (value.producer < 0 && !parameter_[input])) continue;
    for (int32_t storage : value.storages) {
      const int32_t gradient = newStorage(profile.storages[storage].bytes, StorageRole::kOther);
      alloc(step.events, gradient);
      if (gradient_[storage] < 0) {
        gradient_[storage] = gradient;
      } else {
        added.push_back(gradient);
      }
    }
  }
  if (scratch >= 0) free(step.events, scratch);
  step.events.push_back({EventKind::kApplyEnd, -1});
  for (int32_t gradient : added) free(step.events, gradient);
  for (int32_t slot : details.slots) {
    step.events.push_back({EventKind::kRelease, slot});
    release(step.events, profile.slots[slot].storage);
  }
  for (size_t i = 0; i < details.op.output_bytes.size(); ++i) {
    const int32_t storage = profile.values[details.outputs[i]].storages.front();
    if (gradient_[storage] >= 0) free(step.events, gradient_[storage]);
    gradient_[storage] = -1;
  }
  profile.backward.push_back(std::move(step));
}

void ProfileBuilder::recordBackward() {
  for (auto node = static_cast<int32_t>(ops_.size()) - 1; node >= 0; --node) {
    if (ops_[node].op.differentiable) {
      runBackward(node);
      continue;
    }
    // Without gradients autograd saves nothing; the builder's slots go when the step ends.
    ir::BackwardStep step;
    for (int32_t slot : ops_[node].slots) {
      step.events.push_back({EventKind::kRelease, slot});
      release(step.events, input_.profile.slots[slot].storage);
    }
    input_.profile.backward.push_back(std::move(step));
  }
}

PlanningInput ProfileBuilder::finish(const std::vector<int32_t>& outputs) {
  close(outputs);
  input_.minimum_bytes = 1;
  recordForward();
  recordBackward();
  return std::move(input_);
}

}  // namespace remat::testing
