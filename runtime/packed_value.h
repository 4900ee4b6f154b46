#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <vector>

namespace remat::runtime {

/// A value that a frame holds for the backward. Tensors are held as autograd holds them: detached
/// (no cycle through the graph), with the version they had, and through the hooks that the caller
/// has installed. Lists and tuples of tensors are held element by element; anything else as it is.
class PackedValue {
 public:
  /// Call with our own hooks off.
  explicit PackedValue(const c10::IValue& value);

  /// The value again. Throws c10::Error if a tensor was written since.
  c10::IValue unpack() const;

 private:
  enum class Form : uint8_t { kPlain, kTensor, kTensorList, kOptionalTensorList, kTuple };
  Form form_ = Form::kPlain;
  c10::IValue plain_;
  torch::autograd::SavedVariable tensor_;
  std::vector<PackedValue> elements_;
};

}  // namespace remat::runtime
