#include "tests/passes/synthetic.h"

#include <algorithm>

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
      if (profile.storages[storage].role == StorageRole::kInternal) alloc(events, storage);
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

PlanningInput uniformChain(int layers, int64_t bytes, double seconds) {
  ProfileBuilder builder;
  int32_t x = builder.argument(bytes, false);
  for (int layer = 0; layer < layers; ++layer) {
    ProfileBuilder::Op op;
    op.name = "gelu";
    op.seconds = seconds;
    op.inputs = {x};
    op.saved = {x};
    op.output_bytes = {bytes};
    x = builder.add(op);
  }
  return builder.finish({x});
}

namespace {

struct Layers {
  ProfileBuilder& builder;

  int32_t op(const std::string& name, std::vector<int32_t> inputs, int64_t bytes, double seconds,
             std::vector<int32_t> saved, bool saves_result = false) {
    ProfileBuilder::Op op;
    op.name = name;
    op.inputs = std::move(inputs);
    op.saved = std::move(saved);
    op.output_bytes = {bytes};
    op.seconds = seconds;
    if (saves_result) {
      op.saved.push_back(builder.valueCount());
    }
    return builder.add(op);
  }

  int32_t view(const std::string& name, int32_t of) {
    ProfileBuilder::Op op;
    op.name = name;
    op.inputs = {of};
    op.views_of = {0};
    op.seconds = 1e-6;
    return builder.add(op);
  }

  int32_t conv(int32_t x, int64_t bytes, double seconds, int64_t weight) {
    const int32_t w = builder.argument(weight, true);
    return op("conv2d", {x, w}, bytes, seconds, {x, w});
  }

  int32_t batchNorm(int32_t x, int64_t bytes) {
    return op("batch_norm", {x}, bytes, kSecondsPerByte * bytes * 2, {x});
  }

  int32_t relu(int32_t x, int64_t bytes) {
    return op("relu", {x}, bytes, kSecondsPerByte * bytes, {}, true);
  }

  int32_t linear(int32_t x, int64_t bytes, double seconds, int64_t weight) {
    const int32_t w = builder.argument(weight, true);
    return op("linear", {x, w}, bytes, seconds, {x, w});
  }

  static constexpr double kSecondsPerByte = 1.0 / 8e9;
};

}  // namespace

PlanningInput convChain(int layers, int64_t bytes) {
  ProfileBuilder builder;
  Layers net{builder};
  int32_t x = builder.argument(bytes, false);
  for (int layer = 0; layer < layers; ++layer) {
    x = net.conv(x, bytes, 12 * Layers::kSecondsPerByte * bytes, bytes / 8);
    x = net.batchNorm(x, bytes);
    x = net.relu(x, bytes);
  }
  return builder.finish({net.linear(x, 1000, 1e-6, 1000)});
}

PlanningInput bottleneckNet(const std::vector<int>& blocks) {
  ProfileBuilder builder;
  Layers net{builder};
  int64_t wide = int64_t{16} * 256 * 56 * 56 * 4;
  int64_t weight = 70 << 10;
  int32_t x = builder.argument(int64_t{16} * 3 * 224 * 224 * 4, false);
  x = net.conv(x, wide, 0.02, weight);
  x = net.relu(net.batchNorm(x, wide), wide);
  x = net.op("max_pool2d", {x}, wide / 4, 0.004, {x});
  int64_t current = wide / 4;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const int64_t narrow = wide / 4;
      int32_t shortcut = x;
      int32_t y = net.conv(x, block == 0 && stage > 0 ? 2 * narrow : narrow, 0.006, weight);
      const int64_t first = block == 0 && stage > 0 ? 2 * narrow : narrow;
      y = net.relu(net.batchNorm(y, first), first);
      y = net.conv(y, narrow, 0.011, weight);
      y = net.relu(net.batchNorm(y, narrow), narrow);
      y = net.batchNorm(net.conv(y, wide, 0.006, weight), wide);
      if (current != wide || block == 0) {
        shortcut = net.batchNorm(net.conv(x, wide, 0.008, weight), wide);
      }
      y = net.op("add", {y, shortcut}, wide, 1.5 * Layers::kSecondsPerByte * wide, {});
      x = net.relu(y, wide);
      current = wide;
    }
    wide /= 2;
    weight *= 4;
  }
  return builder.finish({net.linear(x, 64000, 1e-4, weight)});
}

PlanningInput transformer(int layers, int64_t width) {
  ProfileBuilder builder;
  Layers net{builder};
  const int64_t tokens = 2048;
  const int64_t hidden = tokens * width * 4;
  const int64_t scores = tokens * 512 * (width / 64) * 4;
  const double linear_seconds = 2.0 * tokens * width * width / 60e9;
  const double byte = Layers::kSecondsPerByte;
  const int64_t weight = width * width * 4;
  auto dropout = [&](int32_t x, int64_t bytes) {
    ProfileBuilder::Op op;
    op.name = "dropout";
    op.inputs = {x};
    op.output_bytes = {bytes, bytes / 4};
    op.seconds = 2 * byte * bytes;
    op.saved = {builder.valueCount() + 1};
    return builder.add(op);
  };
  int32_t x = dropout(builder.argument(hidden, false), hidden);
  for (int layer = 0; layer < layers; ++layer) {
    int32_t y = net.op("layer_norm", {x}, hidden, 2 * byte * hidden, {x});
    const int32_t qkv = net.linear(y, 3 * hidden, 3 * linear_seconds, 3 * weight);
    const int32_t q = net.view("split", qkv);
    const int32_t k = net.view("split", qkv);
    const int32_t v = net.view("split", qkv);
    int32_t p = net.op("matmul", {q, k}, scores, linear_seconds / 2, {q, k});
    p = net.op("softmax", {p}, scores, 2 * byte * scores, {}, true);
    p = dropout(p, scores);
    y = net.op("matmul", {p, v}, hidden, linear_seconds / 2, {p, v});
    y = net.linear(net.view("reshape", y), hidden, linear_seconds, weight);
    x = net.op("add", {x, dropout(y, hidden)}, hidden, 1.5 * byte * hidden, {});
    y = net.op("layer_norm", {x}, hidden, 2 * byte * hidden, {x});
    y = net.linear(y, 4 * hidden, 4 * linear_seconds, 4 * weight);
    y = net.op("gelu", {y}, 4 * hidden, 6 * byte * hidden, {y});
    y = net.linear(net.view("dropout0", y), hidden, 4 * linear_seconds, 4 * weight);
    x = net.op("add", {x, dropout(y, hidden)}, hidden, 1.5 * byte * hidden, {});
  }
  x = net.op("layer_norm", {x}, hidden, 2 * byte * hidden, {x});
  return builder.finish({net.linear(x, 4 * hidden, 10 * linear_seconds, 10 * weight)});
}

PlanningInput randomProfile(std::mt19937_64& random, int ops) {
  auto below = [&](uint64_t n) { return static_cast<int32_t>(random() % n); };
  ProfileBuilder builder;
  std::vector<int32_t> values{builder.argument(100, false), builder.argument(40, true)};
  for (int i = 0; i < ops; ++i) {
    auto pick = [&] {
      const auto window = std::min<size_t>(values.size(), 5);
      return values[values.size() - 1 - below(below(3) == 0 ? values.size() : window)];
    };
    ProfileBuilder::Op op;
    op.name = "op";
    op.seconds = 1 + below(40);
    op.inputs = {pick()};
    if (below(2) == 0) op.inputs.push_back(pick());
    op.replayable = below(8) != 0;
    const int kind = below(10);
    if (kind == 0) {
      op.views_of = {0};
      op.seconds = 0.01;
    } else if (kind == 1) {
      op.list = true;
      op.seconds = 0.01;
    } else {
      const int results = below(6) == 0 ? 2 : 1;
      for (int result = 0; result < results; ++result) op.output_bytes.push_back(10 + below(100));
      if (below(8) == 0) op.views_of = {0};
      for (int32_t input : op.inputs) {
        if (below(2) == 0) op.saved.push_back(input);
      }
      if (below(3) == 0) op.saved.push_back(builder.valueCount());
      if (below(5) == 0) op.internal_bytes = 5 + below(50);
      if (below(4) == 0) op.scratch_bytes = 5 + below(80);
    }
    const int32_t first = builder.add(op);
    if (below(12) == 0 && kind > 1) builder.saveOpaquely(first);
    for (int32_t value = first; value < builder.valueCount(); ++value) values.push_back(value);
  }
  return builder.finish({values.back()});
}

}  // namespace remat::testing
