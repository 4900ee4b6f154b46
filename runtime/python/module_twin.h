#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>

namespace remat::python {

/// A module of the same type with objects of its own, for itself and for every module in it:
/// attributes that are set on the one (train() sets them) stay what they were on the other. Each
/// tensor is what `tensor_of` makes of the original's, once for tensors that occur twice; lists,
/// tuples and dicts are copied around them; custom classes are shared.
torch::jit::Module twinOf(const torch::jit::Module& module,
                          const std::function<at::Tensor(const at::Tensor&)>& tensor_of);

/// The twin that shares the original's tensors.
torch::jit::Module sharingTwin(const torch::jit::Module& module);

/// The twin whose tensors share the original's bytes and nothing else: a training step on it leaves
/// the original's gradients, versions and hooks alone. Parameters are leaves.
torch::jit::Module detachedTwin(const torch::jit::Module& module);

/// Puts the attributes of `from` into `module`, whose own type has the same ones in the same order.
void takeAttributes(torch::jit::Module& module, const torch::jit::Module& from);

}  // namespace remat::python
