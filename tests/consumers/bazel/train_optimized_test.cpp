// train_optimized_test OPTIMIZED.pt: trains it by SGD, and beside it the original that the file
// holds as well.
#include <torch/script.h>

#include <iostream>

namespace {

/// The loss of each step, from the same start.
std::vector<double> train(const std::string& path, const std::string& method, const at::Tensor& x) {
  torch::jit::Module model = torch::jit::load(path);
  at::Tensor w = model.attr("w").toTensor();
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    w.mutable_grad() = at::Tensor();
    const at::Tensor loss = model.get_method(method)({x}).toTensor().square().mean();
    loss.backward();
    const at::NoGradGuard no_grad;
    w.sub_(w.grad());
    losses.push_back(loss.item<double>());
  }
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  torch::jit::setGraphExecutorOptimize(false);
  const at::Tensor x = at::randn({2048, 256});
  const auto losses = train(argv[1], "forward", x);
  const auto expected = train(argv[1], "remat_original_forward", x);
  for (size_t i = 0; i < losses.size(); ++i) {
    std::cout << "loss " << losses[i] << ", the original's " << expected[i] << "\n";
  }
  return losses == expected && losses.back() < losses.front() ? 0 : 1;
}
