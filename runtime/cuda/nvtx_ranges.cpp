// Ranges for Nsight Systems and the like, in a domain of Remat's own. NVTX is headers alone; where
// no tool is attached a range costs two calls that do nothing.

#include <nvtx3/nvToolsExt.h>

#include "runtime/profiler_range.h"

namespace remat::runtime {
namespace {

uint32_t categoryOf(ProfilerRange::Kind kind) { return static_cast<uint32_t>(kind) + 1; }

class NvtxRanges final : public RangeSink {
 public:
  void push(ProfilerRange::Kind kind, const char* what) const noexcept override {
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = categoryOf(kind);
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = what;
    nvtxDomainRangePushEx(domain(), &event);
  }

  void pop() const noexcept override { nvtxDomainRangePop(domain()); }

 private:
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t handle = [] {
      const nvtxDomainHandle_t made = nvtxDomainCreateA("remat");
      using Kind = ProfilerRange::Kind;
      nvtxDomainNameCategoryA(made, categoryOf(Kind::kRegion), "region");
      nvtxDomainNameCategoryA(made, categoryOf(Kind::kSegment), "segment");
      nvtxDomainNameCategoryA(made, categoryOf(Kind::kReplay), "replay");
      return made;
    }();
    return handle;
  }
};

[[maybe_unused]] const bool g_registered = [] {
  static const NvtxRanges ranges;
  setRangeSink(&ranges);
  return true;
}();

}  // namespace
}  // namespace remat::runtime
