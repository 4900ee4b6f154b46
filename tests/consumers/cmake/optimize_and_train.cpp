// optimize_and_train MODEL.pt OUT.pt: optimises a model of one matrix in memory, trains it beside
// the original, and saves it. Ends with 1 where anything is not as it has to be.
#include <remat/remat.h>
#include <remat/runtime/runtime.h>
#include <torch/script.h>

#include <iostream>

namespace {

void check(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("not so: " + what);
}

/// The gradients of the parameters after one step on `x`.
std::vector<at::Tensor> gradients(torch::jit::Module module, const at::Tensor& x) {
  for (at::Tensor parameter : module.parameters()) parameter.mutable_grad() = at::Tensor();
  module.forward({x}).toTensor().square().mean().backward();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : module.parameters()) result.push_back(parameter.grad());
  return result;
}

std::string budgetError(const torch::jit::Module& model, const at::Tensor& x) {
  remat::OptimizeOptions options;
  options.budget.kind = remat::Budget::Kind::kBytes;
  options.budget.bytes = 1;
  try {
    remat::optimize(model, {x}, options);
  } catch (const remat::BudgetError& error) {
    check(error.minimum_peak > 1, "the error tells the lowest reachable peak");
    return error.what();
  }
  return "";
}

void run(const std::string& path, const std::string& out) {
  torch::jit::Module model = torch::jit::load(path);
  const at::Tensor x = at::randn({2048, 256});

  remat::OptimizeOptions options;
  options.budget.fraction = 0.75;
  const remat::OptimizeResult result = remat::optimize(model, {x}, options);
  check(result.changed, "the model is rewritten");
  check(result.plan.recomputed > 0, "something is recomputed");
  check(result.measured_peak <= 0.75 * static_cast<double>(result.original_peak),
        "the budget is kept");

  torch::jit::setGraphExecutorOptimize(false);
  remat::runtime::enableStatistics(true);
  for (int call = 0; call < 4; ++call) {
    const auto expected = gradients(model, x);
    check(remat::runtime::takeStatistics().replayed_nodes == 0, "the original replays nothing");
    const auto found = gradients(result.module, x);
    check(remat::runtime::takeStatistics().replayed_nodes > 0, "the optimised model replays");
    for (size_t i = 0; i < expected.size(); ++i) {
      check(at::equal(expected[i], found[i]), "gradients are the original's");
    }
  }
  const std::string error = budgetError(model, x);
  check(error.find("can't be met") != std::string::npos, "one byte is refused as a BudgetError");
  result.module.save(out);
  std::cout << "trained; a budget of one byte: " << error << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    check(argc == 3, "usage: optimize_and_train MODEL.pt OUT.pt");
    run(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
