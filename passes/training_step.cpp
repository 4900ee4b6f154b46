#include "passes/training_step.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "passes/deterministic_scope.h"
#include "passes/device_memory.h"
#include "passes/module_state.h"
#include "passes/value_tensors.h"

namespace remat {

std::string lossName(const StepOptions& step) {
  const bool cross_entropy = step.loss == StepOptions::Loss::kCrossEntropy;
  return (cross_entropy ? "cross_entropy" : "random gradients") +
         (step.autocast.empty() ? "" : " under " + step.autocast + " autocast") +
         (step.deterministic ? " by deterministic algorithms" : "");
}

namespace {

/// Autocast as `with torch.autocast(…):` turns it on, where the step runs under it.
class AutocastScope {
 public:
  explicit AutocastScope(const StepOptions& options)
      : on_(!options.autocast.empty()), device_(c10::Device(options.device).type()) {
    if (!on_) return;
    enabled_ = at::autocast::is_autocast_enabled(device_);
    dtype_ = at::autocast::get_autocast_dtype(device_);
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_,
                                     options.autocast == "float16" ? at::kHalf : at::kBFloat16);
  }
  ~AutocastScope() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool on_;
  c10::DeviceType device_;
  bool enabled_ = false;
  at::ScalarType dtype_ = at::kBFloat16;
};

/// A copy of `tensor` in CPU memory that runtime/memory_statistics doesn't count.
at::Tensor uncountedCopy(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::NoGradGuard no_grad;
  const at::Tensor source = tensor.layout() == at::kStrided ? tensor.detach() : tensor.to_dense();
  const size_t bytes = static_cast<size_t>(source.numel()) * source.element_size();
  void* const data = std::malloc(bytes > 0 ? bytes : 1);
  TORCH_CHECK(data != nullptr, "out of memory while copying a tensor of ", bytes, " bytes");
  const auto options = source.options().device(at::kCPU);
  at::Tensor copy = source.is_non_overlapping_and_dense()
                        ? at::from_blob(data, source.sizes(), source.strides(), &std::free, options)
                        : at::from_blob(data, source.sizes(), &std::free, options);
  copy.copy_(source);
  return copy;
}

std::vector<at::Tensor> uncountedCopies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) copies.push_back(uncountedCopy(tensor));
  return copies;
}

bool isDifferentiable(const at::Tensor& tensor) {
  return tensor.requires_grad() && (tensor.is_floating_point() || tensor.is_complex());
}

/// The tensor that the cross-entropy loss takes; undefined where there is none.
at::Tensor logitsOf(const c10::IValue& output) {
  for (const at::Tensor& tensor : tensorsOf(output)) {
    if (isDifferentiable(tensor) && !tensor.is_complex() && tensor.dim() >= 2) return tensor;
  }
  return {};
}

/// [N, T, C] as [N * T, C]; other shapes as they are.
at::Tensor classesSecond(const at::Tensor& logits) {
  return logits.dim() == 3 ? logits.reshape({-1, logits.size(2)}) : logits;
}

at::Tensor randomTargets(const at::Tensor& logits, at::Generator& generator) {
  std::vector<int64_t> sizes = classesSecond(logits).sizes().vec();
  const int64_t classes = sizes[1];
  sizes.erase(sizes.begin() + 1);
  return at::randint(classes, sizes, generator, at::TensorOptions().dtype(at::kLong))
      .to(logits.device());
}

at::Tensor randomGradient(const at::Tensor& output, at::Generator& generator) {
  const at::Tensor gradient = at::empty_like(output, output.options().device(at::kCPU));
  return gradient.normal_(0, 1, generator).to(output.device());
}

}  // namespace

/// What is drawn once and then the same in every step.
struct TrainingStep::Seeds {
  std::vector<c10::IValue> inputs;    ///< what forward gets: copies of the caller's
  std::vector<at::Tensor> tensors;    ///< the tensors of `inputs`
  std::vector<at::Tensor> originals;  ///< the caller's, in the same order
  std::vector<uint32_t> versions;     ///< of `tensors` when they held the caller's values
  std::vector<size_t> roots;          ///< kRandomGradients: positions of the differentiable outputs
  std::vector<at::Tensor> gradients;  ///< kRandomGradients: one for each of these
  at::Tensor targets;                 ///< kCrossEntropy
};

TrainingStep::TrainingStep(torch::jit::Module module, std::vector<c10::IValue> inputs,
                           StepOptions options)
    : module_(std::move(module)), inputs_(std::move(inputs)), options_(std::move(options)) {}

StepOutcome TrainingStep::run(const std::string& method, bool keep_results) {
  const torch::jit::Method target = module_.get_method(method);
  return run([&](const std::vector<c10::IValue>& inputs) { return target(inputs); }, keep_results);
}

StepOutcome TrainingStep::run(const Forward& forward, bool keep_results) {
  const c10::Device device(options_.device);
  const RandomStateScope random_state(device);
  const at::AutoGradMode with_gradients(true);
  const DeterministicScope algorithms(options_.deterministic);
  if (seeds_ == nullptr) learn(forward);
  reset();
  seedGenerators(device, options_.seed);

  StepOutcome outcome;
  const PeakGauge peak(device);
  const auto start = std::chrono::steady_clock::now();
  c10::IValue output = [&] {
    const AutocastScope autocast(options_);
    return forward(withOwnContainers(seeds_->inputs));
  }();
  if (keep_results) outcome.outputs = uncountedCopies(tensorsOf(output));
  backward(std::move(output));
  synchronize(device);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  outcome.seconds = seconds.count();
  outcome.peak_bytes = peak.bytes();
  if (keep_results) takeResults(outcome);
  for (const at::Tensor& parameter : module_.parameters()) parameter.mutable_grad().reset();
  for (const at::Tensor& tensor : seeds_->tensors) tensor.mutable_grad().reset();
  return outcome;
}

/// TorchScript's optimisation is off meanwhile, so that its executor doesn't count this as a call.
void TrainingStep::learn(const Forward& forward) {
  auto seeds = std::make_shared<Seeds>();
  seeds->inputs = cloneValues(inputs_);
  for (const c10::IValue& input : inputs_) {
    for (at::Tensor& tensor : tensorsOf(input)) seeds->originals.push_back(std::move(tensor));
  }
  for (const c10::IValue& input : seeds->inputs) {
    for (at::Tensor& tensor : tensorsOf(input)) {
      seeds->versions.push_back(tensor._version());
      seeds->tensors.push_back(std::move(tensor));
    }
  }
  seedGenerators(c10::Device(options_.device), options_.seed);
  const c10::IValue output = [&] {
    ModuleState state(module_);
    const auto restore = c10::make_scope_exit([&] { state.restore(); });
    const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
    const AutocastScope autocast(options_);
    return forward(withOwnContainers(seeds->inputs));
  }();

  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed);
  if (options_.loss == StepOptions::Loss::kCrossEntropy) {
    const at::Tensor logits = logitsOf(output);
    if (!logits.defined()) {
      throw StepError(
          "the output holds no floating-point tensor of two or more dimensions that requires grad, "
          "which a cross-entropy loss needs: train without a loss");
    }
    seeds->targets = randomTargets(logits.detach(), generator);
  } else {
    const std::vector<at::Tensor> tensors = tensorsOf(output);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!isDifferentiable(tensors[i])) continue;
      seeds->roots.push_back(i);
      seeds->gradients.push_back(randomGradient(tensors[i].detach(), generator));
    }
    if (seeds->gradients.empty()) {
      throw StepError(
          "the output holds no floating-point tensor that requires grad, so there is nothing to "
          "train: let a parameter or an input require grad (remat-opt: x:grad)");
    }
  }
  seeds_ = std::move(seeds);
}

void TrainingStep::reset() {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : module_.parameters()) parameter.mutable_grad().reset();
  for (size_t i = 0; i < seeds_->tensors.size(); ++i) {
    const at::Tensor& tensor = seeds_->tensors[i];
    tensor.mutable_grad().reset();
    if (static_cast<uint32_t>(tensor._version()) == seeds_->versions[i]) continue;
    tensor.copy_(seeds_->originals[i]);
    seeds_->versions[i] = tensor._version();
  }
}

/// The roots that the first forward had, by position: TorchScript's optimised executor lets outputs
/// require grad that don't in eager mode.
void TrainingStep::addRoots(const c10::IValue& output, torch::autograd::edge_list& roots,
                            torch::autograd::variable_list& gradients) const {
  const std::vector<at::Tensor> tensors = tensorsOf(output);
  for (size_t i = 0; i < seeds_->roots.size(); ++i) {
    if (seeds_->roots[i] >= tensors.size() || !isDifferentiable(tensors[seeds_->roots[i]])) {
      throw StepError("the differentiable output tensors change from step to step");
    }
    const at::Tensor& root = tensors[seeds_->roots[i]];
    roots.push_back(torch::autograd::impl::gradient_edge(root));
    // The output of a model with a growing state has other sizes in every step.
    if (gradients[i].sizes() != root.sizes()) {
      at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed + i);
      gradients[i] = randomGradient(root.detach(), generator);
    }
  }
}

void TrainingStep::backward(c10::IValue output) {
  torch::autograd::edge_list roots;
  torch::autograd::variable_list gradients = seeds_->gradients;
  if (options_.loss == StepOptions::Loss::kCrossEntropy) {
    at::Tensor logits = logitsOf(output);
    output = c10::IValue();
    at::Tensor loss = [&] {
      const AutocastScope autocast(options_);
      return at::cross_entropy_loss(classesSecond(logits), seeds_->targets);
    }();
    logits.reset();
    gradients.push_back(at::ones_like(loss));
    roots.push_back(torch::autograd::impl::gradient_edge(loss));
  } else {
    addRoots(output, roots, gradients);
    output = c10::IValue();
  }
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

void TrainingStep::takeResults(StepOutcome& outcome) {
  for (const at::Tensor& parameter : module_.parameters()) {
    outcome.gradients.push_back(uncountedCopy(parameter.grad()));
  }
  for (const at::Tensor& tensor : seeds_->tensors) {
    if (tensor.requires_grad()) outcome.gradients.push_back(uncountedCopy(tensor.grad()));
  }
  for (const at::Tensor& buffer : module_.buffers()) {
    outcome.buffers.push_back(uncountedCopy(buffer));
  }
  constexpr int64_t kDraws = 8;
  outcome.next_draw =
      uncountedCopy(at::rand({kDraws}, at::TensorOptions().device(c10::Device(options_.device))));
}

}  // namespace remat
