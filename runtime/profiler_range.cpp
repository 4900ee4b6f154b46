#include "runtime/profiler_range.h"

#include <atomic>

namespace remat::runtime {
namespace {

std::atomic<const RangeSink*> g_sink{nullptr};

const char* nameOf(ProfilerRange::Kind kind) {
  switch (kind) {
    case ProfilerRange::Kind::kRegion:
      return "remat::region ";
    case ProfilerRange::Kind::kSegment:
      return "remat::segment ";
    case ProfilerRange::Kind::kReplay:
      return "remat::replay ";
  }
  return "remat ";
}

}  // namespace

ProfilerRange::ProfilerRange(Kind kind, const std::string& what)
    : record_(at::RecordScope::USER_SCOPE), sink_(g_sink.load(std::memory_order_acquire)) {
  if (record_.isActive()) record_.before(nameOf(kind) + what);
  if (sink_ != nullptr) sink_->push(kind, what.c_str());
}

ProfilerRange::~ProfilerRange() {
  if (sink_ != nullptr) sink_->pop();
}

void setRangeSink(const RangeSink* sink) { g_sink.store(sink, std::memory_order_release); }

}  // namespace remat::runtime
