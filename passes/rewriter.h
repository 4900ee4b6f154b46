#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace remat {

/// The values to mark, by ir::regionOrder.
struct RegionMarks {
  std::vector<int32_t> keep;
  std::vector<int32_t> drop = {};        ///< recomputed for each use
  std::vector<int32_t> regenerate = {};  ///< the internals of what makes them
};

/// The region for a prepared graph (passes/prepare.h): a copy with a `remat::keep` mark behind the
/// producer of each value in `marks.keep`, ids by ir::regionOrder of `prepared`, which stays as it
/// was.
///
///     %layer1_0_conv1 : Tensor = aten::conv2d(…)       %30 : Tensor = aten::conv2d(…)
///     %layer1_0_bn1 : Tensor = aten::batch_norm(       %layer1_0_conv1 : Tensor = remat::keep(%30)
///         %layer1_0_conv1, …)                     →    %layer1_0_bn1 : Tensor = aten::batch_norm(
///                                                          %layer1_0_conv1, …)
///
/// The mark takes the value's name, so that notes on a name hold before and after the rewrite.
/// Values that a mark would not change are passed over: arguments, constants, results of marks,
/// what holds no tensors, and what is made inside of a loop or a `with` statement (always kept).
/// Marked besides are values that share their bytes with a result of the region: those are alive as
/// long as the caller wants them.
///
/// Values of `marks.drop` get a `remat::drop` mark unless they are kept, those of
/// `marks.regenerate` a `remat::regenerate` mark, behind the other one.
///
/// Everything is checked before the copy is changed and the result is verified (ir/verifier.h);
/// throws c10::Error that names the value at fault.
std::shared_ptr<torch::jit::Graph> rewriteRegion(const std::shared_ptr<torch::jit::Graph>& prepared,
                                                 const RegionMarks& marks);

}  // namespace remat
