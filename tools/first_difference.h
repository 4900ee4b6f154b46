#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "passes/options.h"

namespace remat::tools {

/// The first tensor that an optimised method computes otherwise than the original in `steps`
/// training steps: of what the original computes, in its forward's order, then of the gradients, in
/// the order in which the backward finds them. Both run with TorchScript's optimisation off.
///
///     the value that aten::masked_fill_ makes at decoder.attn (model.py:41)
///     the gradient of what aten::gelu makes at layer1.act (model.py:17)
///
/// Behind it stands the step where that isn't the first. Empty where every tensor of the original
/// has the same bits in the other. Both modules' buffers are set back.
std::string firstDifference(const torch::jit::Module& original, const torch::jit::Module& optimized,
                            const std::string& method, const std::vector<c10::IValue>& inputs,
                            const StepOptions& options, int steps);

}  // namespace remat::tools
