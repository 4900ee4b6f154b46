#pragma once

#include <cstdint>
#include <string>

namespace remat::ir {

/// `remat::keep(Tensor(a) x) -> Tensor(a)` and `remat::keep.list(Tensor(a)[] x) -> Tensor(a)[]`:
/// identity; marks a boundary: the bytes behind x stay in memory until the backward no longer needs
/// them.
inline constexpr const char* kKeepMark = "remat::keep";

/// `remat::regenerate(Tensor(a) x) -> Tensor(a)`: identity; what the operator that made x saved
/// inside of itself (copies that matmul made, a pooling's indices) is made again by running that
/// operator again.
inline constexpr const char* kRegenerateMark = "remat::regenerate";

/// `remat::drop(Tensor(a) x) -> Tensor(a)` and `remat::drop.list(Tensor(a)[] x) -> Tensor(a)[]`:
/// identity; a backward that recomputes x does not hold on to it from one use to the next, but
/// recomputes it for each.
inline constexpr const char* kDropMark = "remat::drop";

/// `remat::use(Tensor x) -> ()`: does nothing; counts as a reader of x with an effect of its own,
/// so that nothing removes what made x.
inline constexpr const char* kUse = "remat::use";

/// `remat::checkpoint(Any self, str region, Any args, int version) -> Any`: runs method `region` of
/// `self` on `(self, *args)`, keeping and recomputing as the method's marks say.
inline constexpr const char* kCheckpoint = "remat::checkpoint";

/// A region in memory: a node with the subgraph that the method would hold; its inputs are the
/// subgraph's.
inline constexpr const char* kRegion = "remat::region";

/// `remat::dropout_mask(Tensor x, float p, bool train) -> Tensor`: the mask that `aten::dropout(x,
/// p, train)` would draw, one byte (bool) an element, true = kept; an empty tensor where dropout
/// does nothing.
inline constexpr const char* kDropoutMask = "remat::dropout_mask";

/// `remat::dropout(Tensor(a) x, Tensor mask, float p, bool train) -> Tensor(a)`: x * mask / (1 -
/// p); x itself where dropout does nothing.
inline constexpr const char* kDropout = "remat::dropout";

/// `remat::attention_weights(Tensor query, Tensor key, Tensor? attn_mask, float dropout_p, bool
/// is_causal, float? scale, bool enable_gqa) -> Tensor`: attention's probabilities before dropout;
/// empty where it does nothing.
inline constexpr const char* kAttentionWeights = "remat::attention_weights";

/// `remat::attention(Tensor weights, Tensor query, Tensor key, Tensor value, Tensor? attn_mask,
/// float dropout_p, bool is_causal, float? scale, bool enable_gqa) -> Tensor`: the rest of it.
inline constexpr const char* kAttention = "remat::attention";

/// `remat::add(Tensor x, Tensor other, Scalar alpha) -> Tensor`, `remat::sub`, and without alpha
/// `remat::mul` and `remat::div`: what `aten::add_` and its like would write into x, as a tensor of
/// its own, with their dtype, gradients and errors.
inline constexpr const char* kWrittenCopies[] = {"remat::add", "remat::sub", "remat::mul",
                                                 "remat::div"};

/// Version of the file format: the last argument of kCheckpoint.
inline constexpr int64_t kFormatVersion = 1;

/// Archive entry of an optimised file that holds what was predicted and why, as JSON.
inline constexpr const char* kAnnotationsFile = "remat.json";

/// `remat_region_<method>_<n>`; the method that holds region n of `method`.
std::string regionMethodName(const std::string& method, int n);
/// `remat_original_<method>`; the method that holds the graph before the rewrite.
std::string originalMethodName(const std::string& method);

}  // namespace remat::ir
