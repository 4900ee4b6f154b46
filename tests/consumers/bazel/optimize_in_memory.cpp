// optimize_in_memory OUT.pt: makes a small model, optimises it to three quarters of its training
// memory, and saves it.
#include <torch/script.h>

#include <iostream>

#include "passes/remat.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    at::manual_seed(0);
    torch::jit::Module model("Mlp");
    model.register_parameter("w", (at::randn({256, 256}) / 16).set_requires_grad(true), false);
    model.define(R"(
def forward(self, x):
    x = torch.gelu(torch.matmul(x, self.w))
    x = torch.gelu(torch.matmul(x, self.w))
    return torch.matmul(x, self.w)
)");
    remat::OptimizeOptions options;
    options.budget.fraction = 0.75;
    const auto result = remat::optimize(model, {at::randn({2048, 256})}, options);
    if (!result.changed) throw std::runtime_error("unchanged: " + result.reason_unchanged);
    result.module.save(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
