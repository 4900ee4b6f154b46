#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace remat::tools {

/// One argument of the model, as `--input` describes it:
///
///     16x3x224x224              float32, standard normal
///     16x3x224x224:bfloat16     another dtype
///     4x512:int64:0..8191       uniform in 0..8191, both ends included; integers default to 0..1
///     8x16:grad                 the input requires grad
///     scalar:float32            a tensor without dimensions
///     int=3 float=0.5 bool=true str=text none      no tensor
struct InputSpec {
  std::string text;  ///< as given
  bool is_tensor = true;
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  bool has_range = false;
  double low = 0;
  double high = 0;
  bool requires_grad = false;
  c10::IValue value;  ///< where it is no tensor
};

/// Throws std::invalid_argument that says what is wrong where (`position 6: …`).
InputSpec parseInputSpec(const std::string& text);

/// A value for each spec, drawn in order from one generator with `seed`, on `device`.
std::vector<c10::IValue> makeInputs(const std::vector<InputSpec>& specs, uint64_t seed,
                                    c10::Device device);

}  // namespace remat::tools
