#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <vector>

namespace remat::runtime {

/// What autograd can save of `tensor`: detached (no cycle through the graph), with the same version
/// counter; of an inference tensor, which has none and whose writers leave no trace, a copy.
at::Tensor savable(const at::Tensor& tensor);

/// A value that a frame holds for the backward. Tensors are held as autograd holds them:
/// detached (no cycle through the graph), with the version they had, and through the hooks that the
/// caller has installed; inference tensors, whose writers leave no trace, as a copy. Lists and
/// tuples are held element by element, lists of numbers as a copy; anything else as it is.
class PackedValue {
 public:
  /// Call with our own hooks off.
  explicit PackedValue(const c10::IValue& value);

  /// The value again. Throws c10::Error if a tensor was written since.
  c10::IValue unpack() const;
  /// The same with the strides that it had: a caller's hooks may return a copy with others
  /// (save_on_cpu does), which operators pass on to what is recomputed.
  c10::IValue unpackWithStrides() const;

 private:
  enum class Form : uint8_t { kPlain, kTensor, kList, kTuple };

  template <typename UnpackTensor>
  c10::IValue unpackElements(const UnpackTensor& unpack_tensor) const;

  Form form_ = Form::kPlain;
  c10::IValue plain_;
  torch::autograd::SavedVariable tensor_;
  std::vector<int64_t> strides_;
  c10::TypePtr element_type_;
  std::vector<PackedValue> elements_;
};

}  // namespace remat::runtime
