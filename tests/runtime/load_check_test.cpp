#include "runtime/load_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace remat::runtime {
namespace {

using ::testing::HasSubstr;

std::string configuration(const std::string& version) {
  return "PyTorch built with:\n  - Build settings: USE_MKL=ON, TORCH_VERSION=" + version +
         ", USE_CUDA=ON, \n";
}

TEST(LoadCheckTest, PatchesAndBuildsOfOneMinorVersionFit) {
  EXPECT_EQ(libtorchMismatch("libremat.so", "2.11.0", configuration("2.11.0")), "");
  EXPECT_EQ(libtorchMismatch("libremat.so", "2.11.0", configuration("2.11.3")), "");
  EXPECT_EQ(libtorchMismatch("libremat.so", "2.11.0", configuration("2.11.0a0+git1234")), "");
}

TEST(LoadCheckTest, AnotherVersionIsNamedWithTheLibraryAndBothVersions) {
  for (const std::string found : {"2.1.0", "2.12.0", "3.11.0", "2.110.0"}) {
    const std::string text = libtorchMismatch("/x/libremat.so", "2.11.0", configuration(found));
    EXPECT_THAT(text, HasSubstr("/x/libremat.so was built for LibTorch 2.11, and this process has "
                                "LibTorch " +
                                found + "."));
  }
}

TEST(LoadCheckTest, AConfigurationWithoutVersionFits) {
  EXPECT_EQ(libtorchMismatch("libremat.so", "2.11.0", "built by hand"), "");
}

}  // namespace
}  // namespace remat::runtime
