#include <gtest/gtest.h>

namespace remat::runtime::test {
namespace {

TEST(CudaTest, IsLeftOut) {
  GTEST_SKIP() << "built without the CUDA parts: by --config=cpu, or there is no CUDA toolkit, or "
                  "this LibTorch has no CUDA";
}

}  // namespace
}  // namespace remat::runtime::test
