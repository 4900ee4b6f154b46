#pragma once

#include <ATen/record_function.h>

#include <string>

namespace remat::runtime {

class RangeSink;

/// While one lives, profilers see that this thread runs a region's forward, recomputes a value (a
/// segment) or replays a node of one. PyTorch's profiler, and NVTX through its emit_nvtx, see a
/// user's range such as `remat::replay layer1.0.conv1 (resnet.py:154)`; NVTX tools see one in the
/// domain `remat` of the category `replay` without emit_nvtx as well, where the runtime was built
/// with the CUDA toolkit.
class ProfilerRange {
 public:
  enum class Kind : uint8_t { kRegion, kSegment, kReplay };

  ProfilerRange(Kind kind, const std::string& what);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  at::RecordFunction record_;
  const RangeSink* sink_;
};

/// Told of every range; they nest on each thread.
class RangeSink {
 public:
  virtual ~RangeSink() = default;
  virtual void push(ProfilerRange::Kind kind, const char* what) const noexcept = 0;
  virtual void pop() const noexcept = 0;
};

/// One sink for the process, never destroyed; null for none. Ranges that are open keep theirs.
void setRangeSink(const RangeSink* sink);

}  // namespace remat::runtime
