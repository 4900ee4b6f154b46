#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

namespace remat {

/// The defined tensors inside `value`, in a fixed order: elements of tuples, NamedTuples and lists
/// by position, values of dicts in insertion order, attributes of objects by slot. A tensor that
/// occurs twice is listed twice.
std::vector<at::Tensor> tensorsOf(const c10::IValue& value);

/// A copy of `values` that shares no storage with it; which tensors require grad carries over,
/// their history doesn't.
std::vector<c10::IValue> cloneValues(const std::vector<c10::IValue>& values);

/// `value` with its lists, tuples (NamedTuples stay such) and dicts made anew, and `change` of each
/// thing in them, keys included, that is none; of `value` itself if it is none.
c10::IValue mapLeaves(const c10::IValue& value,
                      const std::function<c10::IValue(const c10::IValue&)>& change);

/// `values` in lists, tuples and dicts of their own, holding the same tensors: a method that writes
/// its list argument leaves `values` as they are.
std::vector<c10::IValue> withOwnContainers(const std::vector<c10::IValue>& values);

/// `Float[16, 3, 224, 224], Float[8]:grad, 3`: what of the inputs a plan holds for.
std::string describeInputs(const std::vector<c10::IValue>& inputs);

}  // namespace remat
