#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace torch::jit {
struct Graph;
}

namespace remat {

/// Arguments to try `graph` on, made up by the types of its values (or of an executor's profiling
/// in it): tensors of the sizes, dtypes and devices that they say, random numbers in them (integers
/// are 0); a module with such tensors for the attributes that the graph reads, parameters requiring
/// grad, in training mode. Values of other types are their type's zero.
///
/// Throws RematError that names the value whose type says too little: sizes that are not known, or
/// an attribute that is neither a tensor nor the training flag.
std::vector<c10::IValue> typedArguments(torch::jit::Graph& graph);

}  // namespace remat
