#include "passes/measured_roofline.h"

#include <gtest/gtest.h>

#include "runtime/memory_statistics.h"

namespace remat {
namespace {

TEST(MeasuredRooflineTest, MeasuresAndGivesItsMemoryBack) {
  runtime::installMemoryStatistics();
  const int64_t before = runtime::liveBytes();
  const ir::Roofline roofline = measureRoofline(c10::kCPU, at::kFloat, /*edge=*/128,
                                                /*buffer=*/int64_t{1} << 22);
  EXPECT_EQ(runtime::liveBytes(), before);
  // Of any machine that runs this: 10 MFLOP/s to 1 PFLOP/s, 10 MB/s to 100 TB/s.
  EXPECT_GT(roofline.flops, 1e7);
  EXPECT_LT(roofline.flops, 1e15);
  EXPECT_GT(roofline.bytes, 1e7);
  EXPECT_LT(roofline.bytes, 1e14);
}

}  // namespace
}  // namespace remat
