// Trains a TorchScript file by plain calls of forward and backward: eagerly (TorchScript's
// optimisation off), as TorchScript runs it, and with Remat's pass registered. Prints whether
// gradients and outputs are eager's, bit for bit, in each of six calls, and what a step holds at
// its peak.
//
//     registered_pass MODEL.pt INPUTS.pt BUDGET [bfloat16]

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "passes/device_memory.h"
#include "passes/register_pass.h"
#include "tools/budget.h"
#include "tools/saved_inputs.h"

namespace remat::bench {
namespace {

constexpr int kCalls = 6;
constexpr double kMega = 1e6;

struct Arguments {
  std::string model;
  std::string inputs;
  std::string budget;
  bool autocast = false;
};

/// As `with torch.autocast("cpu", torch.bfloat16):`.
class Autocast {
 public:
  explicit Autocast(bool on) : on_(on) {
    if (!on_) return;
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Autocast() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
};

size_t hashOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  const at::Tensor bytes = tensor.detach().contiguous();
  return std::hash<std::string_view>()(
      {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
}

struct Call {
  std::vector<size_t> hashes;  ///< of the output, of gradients, of buffers
  int64_t peak = 0;
  double seconds = 0;
};

Call train(torch::jit::Module& module, const std::vector<c10::IValue>& inputs, bool autocast,
           int call, at::Tensor& gradient) {
  at::manual_seed(call);
  for (const at::Tensor& parameter : module.parameters()) parameter.mutable_grad().reset();
  Call result;
  const PeakGauge peak(at::kCPU);
  const auto start = std::chrono::steady_clock::now();
  at::Tensor output = [&] {
    const Autocast scope(autocast);
    return module.forward(inputs).toTensor();
  }();
  if (!gradient.defined()) gradient = at::ones_like(output);
  output.backward(gradient);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.peak = peak.bytes();
  result.hashes.push_back(hashOf(output));
  for (const at::Tensor& parameter : module.parameters()) {
    result.hashes.push_back(hashOf(parameter.grad()));
  }
  for (const at::Tensor& buffer : module.buffers()) result.hashes.push_back(hashOf(buffer));
  return result;
}

std::vector<Call> trainAll(torch::jit::Module module, const std::vector<c10::IValue>& inputs,
                           bool autocast) {
  std::vector<Call> calls;
  at::Tensor gradient;
  // The gradient is there before the first step that counts.
  for (int call = 0; call < kCalls; ++call) {
    calls.push_back(train(module, inputs, autocast, call, gradient));
  }
  return calls;
}

/// Of the last `count` calls.
int64_t highestPeak(const std::vector<Call>& calls, int count) {
  int64_t peak = 0;
  for (auto call = calls.end() - count; call != calls.end(); ++call) {
    peak = std::max(peak, call->peak);
  }
  return peak;
}

double fastest(const std::vector<Call>& calls) {
  double seconds = calls.back().seconds;
  for (auto call = calls.begin() + 3; call != calls.end(); ++call) {
    seconds = std::min(seconds, call->seconds);
  }
  return seconds;
}

int run(const Arguments& arguments) {
  const std::vector<c10::IValue> inputs = tools::loadInputs(arguments.inputs, at::kCPU);
  const auto load = [&] {
    torch::jit::Module module = torch::jit::load(arguments.model);
    module.train();
    return module;
  };
  const std::vector<Call> eager = [&] {
    const torch::jit::GraphOptimizerEnabledGuard off(false);
    return trainAll(load(), inputs, arguments.autocast);
  }();
  const std::vector<Call> plain = trainAll(load(), inputs, arguments.autocast);

  OptimizeOptions options;
  options.budget = tools::parseBudget(arguments.budget);
  options.progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  const RegisteredPass pass(options);
  torch::jit::Module module = load();
  {
    const Autocast scope(arguments.autocast);
    warmUp(module, inputs);
  }
  const std::vector<Call> checkpointed = trainAll(module, inputs, arguments.autocast);

  int different = 0;
  for (int call = 0; call < kCalls; ++call) {
    const bool same = eager[call].hashes == checkpointed[call].hashes;
    different += same ? 0 : 1;
    std::printf("call %d: %s, peak %.1f MB\n", call + 1,
                same ? "outputs, gradients and buffers are eager's" : "DIFFERENT",
                static_cast<double>(checkpointed[call].peak) / kMega);
  }
  // Of what TorchScript runs the third call is the first that looks like all later ones.
  const int64_t eager_peak = highestPeak(eager, kCalls - 1);
  const int64_t plain_peak = highestPeak(plain, 2);
  const int64_t original = std::min(eager_peak, plain_peak);
  const int64_t peak = highestPeak(checkpointed, kCalls - 1);
  std::printf("peak: eager %lld, TorchScript %lld, with the pass %lld bytes: %.1f %%\n",
              static_cast<long long>(eager_peak), static_cast<long long>(plain_peak),
              static_cast<long long>(peak),
              100 * static_cast<double>(peak) / static_cast<double>(original));
  std::printf("fastest step: eager %.3f s, TorchScript %.3f s, with the pass %.3f s\n",
              fastest(eager), fastest(plain), fastest(checkpointed));
  return different == 0 ? 0 : 4;
}

}  // namespace
}  // namespace remat::bench

int main(int count, char** values) {
  const std::vector<std::string> given(values + 1, values + count);
  if (given.size() < 3 || given.size() > 4 || (given.size() == 4 && given[3] != "bfloat16")) {
    std::fprintf(stderr, "usage: registered_pass MODEL.pt INPUTS.pt BUDGET [bfloat16]\n");
    return 2;
  }
  try {
    return remat::bench::run({given[0], given[1], given[2], given.size() == 4});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "registered_pass: %s\n", error.what());
    return 1;
  }
}
