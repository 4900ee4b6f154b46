#include "runtime/autotuning.h"

#include <ATen/Context.h>

namespace remat::runtime {

void checkAutotuning(const std::string& op, const std::string& where, c10::Device device) {
  const at::Context& context = at::globalContext();
  if (!context.benchmarkCuDNN() || !context.userEnabledCuDNN() || !device.is_cuda() ||
      op.rfind("aten::", 0) != 0 || op.find("conv") == std::string::npos) {
    return;
  }
  TORCH_CHECK(!context.deterministicCuDNN() && !context.deterministicAlgorithms(), "remat: ", where,
              " may be recomputed with another algorithm than the forward used, because cuDNN's "
              "autotuning (torch.backends.cudnn.benchmark) chooses on each thread anew. "
              "Deterministic algorithms are asked for: turn autotuning off");
  TORCH_WARN_ONCE("remat: cuDNN's autotuning (torch.backends.cudnn.benchmark) is on: ", where,
                  ", and other convolutions, may be recomputed with another algorithm than the "
                  "forward used, so that gradients differ in their last bits. Turn it off where "
                  "that matters");
}

}  // namespace remat::runtime
