#pragma once

namespace torch::jit {
struct Graph;
}

namespace remat {

/// Names tensor values after the module whose code made them: `layer2_0_relu` where all of a
/// module's ops are of one kind, `blocks_3_attn_softmax` where they are not, `flatten_1` outside of
/// submodules; `_2`, `_3` for repetitions. Parameters and buffers are `layer2_0_bn1_weight`,
/// submodules `self_layer2_0_bn1`. A name survives saving and serves dumps, annotations and error
/// messages. Values inside of loops and values that come out of branches keep the names they have.
void giveReadableNames(torch::jit::Graph& graph);

}  // namespace remat
