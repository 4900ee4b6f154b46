#include "tests/passes/synthetic.h"

#include <algorithm>

namespace remat::testing {

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

PlanningInput randomProfile(std::mt19937_64& random, int ops, bool casts) {
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
      for (int32_t input : op.inputs) {
        if (casts && below(3) == 0) op.saved_casts.push_back(input);
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
