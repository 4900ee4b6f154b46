// train_optimized OPTIMIZED.pt: trains an optimised model. It names nothing of Remat: the linker
// has to keep the runtime.
#include <torch/script.h>
#include <torch/torch.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  torch::jit::Module model = torch::jit::load(argv[1]);
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : model.parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, 1.0);
  const at::Tensor x = at::randn({2048, 256});
  double first = 0, last = 0;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = model.forward({x}).toTensor().square().mean();
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  std::cout << "loss " << first << " -> " << last << "\n";
  return last < first ? 0 : 1;
}
