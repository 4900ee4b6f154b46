#include "tests/runtime/touchy.h"

#include <ATen/ops/sigmoid.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <atomic>

namespace remat::runtime::test {
namespace {

std::atomic<bool> g_throws{false};

const torch::jit::RegisterOperators kTouchy({torch::jit::Operator(
    "aten::touchy(Tensor x) -> Tensor",
    [](torch::jit::Stack& stack) {
      const at::Tensor x = torch::jit::pop(stack).toTensor();
      TORCH_CHECK(!g_throws, "touchy was touched");
      stack.emplace_back(at::sigmoid(x));
    },
    c10::AliasAnalysisKind::FROM_SCHEMA)});

}  // namespace

void makeTouchyThrow(bool on) { g_throws = on; }

}  // namespace remat::runtime::test
