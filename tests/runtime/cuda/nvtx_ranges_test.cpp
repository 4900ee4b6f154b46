// What a tool such as Nsight Systems sees of a step: this test is the tool. It needs no device.

#include <cstdint>

/// Where NVTX looks for a tool that is linked into the program.
extern "C" int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(uint32_t));
#define NVTX_STATIC_INJECTION_IMPL

#include <ATen/ATen.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/runtime/support.h"

namespace remat::runtime::test {
namespace {

struct Seen {
  std::string domain;
  std::vector<std::string> categories;  ///< by number - 1
  std::vector<std::string> ranges;      ///< `replay a.b (c.py:1)`, indented by depth
  size_t open = 0;
};
Seen g_seen;

char g_domain;  ///< its address is the handle

nvtxDomainHandle_t NVTX_API createDomain(const char* name) {
  g_seen.domain = name;
  return reinterpret_cast<nvtxDomainHandle_t>(&g_domain);
}

void NVTX_API nameCategory(nvtxDomainHandle_t /*domain*/, uint32_t category, const char* name) {
  g_seen.categories.resize(std::max<size_t>(g_seen.categories.size(), category));
  g_seen.categories.at(category - 1) = name;
}

int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  if (domain == reinterpret_cast<nvtxDomainHandle_t>(&g_domain)) {
    g_seen.ranges.push_back(std::string(2 * g_seen.open++, ' ') +
                            g_seen.categories.at(event->category - 1) + " " + event->message.ascii);
  }
  return static_cast<int>(g_seen.open);
}

int NVTX_API pop(nvtxDomainHandle_t /*domain*/) { return static_cast<int>(--g_seen.open); }

template <typename Function>
void replace(NvtxFunctionTable table, size_t id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int NVTX_API inject(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  replace(table, NVTX_CBID_CORE2_DomainCreateA, &createDomain);
  replace(table, NVTX_CBID_CORE2_DomainNameCategoryA, &nameCategory);
  replace(table, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  replace(table, NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}

class NvtxRangesTest : public RuntimeTest {};

TEST_F(NvtxRangesTest, AToolSeesRegionsSegmentsAndReplays) {
  Module remat = optimized(makeModule(R"(
def forward(self, x: Tensor) -> Tensor:
    a = torch.tanh(x)
    b = torch.sigmoid(a)
    return b * torch.sin(b)
)"));
  remat.forward({randomTensor({8}, true)}).toTensor().sum().backward();
  EXPECT_EQ(g_seen.domain, "remat");
  EXPECT_EQ(g_seen.categories, (std::vector<std::string>{"region", "segment", "replay"}));
  ASSERT_GE(g_seen.ranges.size(), 3);
  EXPECT_EQ(g_seen.ranges[0], "region remat_region_forward_0");
  EXPECT_EQ(g_seen.ranges[1].rfind("segment ", 0), 0) << g_seen.ranges[1];
  EXPECT_EQ(g_seen.ranges[2].rfind("  replay ", 0), 0) << g_seen.ranges[2];
  EXPECT_EQ(g_seen.open, 0);
}

}  // namespace
}  // namespace remat::runtime::test

int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(uint32_t)) = &remat::runtime::test::inject;
