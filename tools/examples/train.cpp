// Optimises a TorchScript classifier to half of its training memory, in memory, and trains it:
//
//   train MODEL.pt [SIZE]...      sizes of the input, 16 3 112 112 without
#include <remat/remat.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <iostream>

namespace {

void train(const std::string& path, const std::vector<int64_t>& sizes) {
  torch::jit::Module original = torch::jit::load(path);
  const at::Tensor images = at::randn(sizes);
  const at::Tensor labels = at::randint(10, {sizes[0]}, at::kLong);

  remat::OptimizeOptions options;
  options.budget.fraction = 0.5;  // of the original's step peak
  options.step.loss = remat::StepOptions::Loss::kCrossEntropy;
  options.progress = [](const std::string& line) { std::cerr << line << "\n"; };
  const remat::OptimizeResult result = remat::optimize(original, {images}, options);
  std::cout << "measured peak of a step: " << remat::ir::formatBytes(result.original_peak)
            << " before, " << remat::ir::formatBytes(result.measured_peak) << " after\n";

  torch::jit::Module model = result.module;  // shares its parameters with the original
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : model.parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.01).momentum(0.9));
  for (int step = 1; step <= 20; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(model.forward({images}).toTensor(), labels);
    loss.backward();
    optimizer.step();
    std::cout << "step " << step << ": loss " << loss.item<float>() << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: train MODEL.pt [SIZE]...\n";
    return 2;
  }
  std::vector<int64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::stoll(argv[i]));
  if (sizes.empty()) sizes = {16, 3, 112, 112};
  try {
    train(argv[1], sizes);
  } catch (const std::exception& error) {  // remat::BudgetError says what would be reachable
    std::cerr << error.what() << "\n";
    return 1;
  }
}
