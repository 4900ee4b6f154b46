#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace remat::runtime {

/// The arguments of `aten::scaled_dot_product_attention` besides its value.
struct Attention {
  at::Tensor query;  ///< [..., heads, L, E]
  at::Tensor key;    ///< [..., heads, S, E]
  std::optional<at::Tensor> mask;
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;
  bool grouped = false;  ///< enable_gqa
};

/// The probabilities before their dropout, [..., heads, L, S], as LibTorch computes them on the CPU
/// where attention drops out (_scaled_dot_product_attention_math), bit for bit; half precision is
/// computed, and returned, in float as there. Empty without dropout: then attention may fuse, and
/// draws nothing.
at::Tensor attentionWeights(const Attention& attention);

/// The result of attention for `weights`, which went through their dropout; where these are empty,
/// `aten::scaled_dot_product_attention` itself.
at::Tensor applyAttention(const at::Tensor& weights, const Attention& attention,
                          const at::Tensor& value);

}  // namespace remat::runtime
