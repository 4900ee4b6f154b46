#include "tests/runtime/cuda/interposed_calls.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

namespace {

std::mutex g_mutex;
std::map<std::string, int> g_waiting;
int g_device_counts = 0;

void count(const char* call) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_waiting[call]++;
}

/// The runtime's own function behind the one of the same name here.
template <typename Function>
Function* behind(Function* /*ours*/, const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

bool reachesHost(cudaMemcpyKind kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDefault;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  static auto* const next = behind(&cudaStreamSynchronize, "cudaStreamSynchronize");
  count("cudaStreamSynchronize");
  return next(stream);
}

cudaError_t cudaDeviceSynchronize() {
  static auto* const next = behind(&cudaDeviceSynchronize, "cudaDeviceSynchronize");
  count("cudaDeviceSynchronize");
  return next();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  static auto* const next = behind(&cudaEventSynchronize, "cudaEventSynchronize");
  count("cudaEventSynchronize");
  return next(event);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  static auto* const next = behind(&cudaMemcpy, "cudaMemcpy");
  count("cudaMemcpy");
  return next(to, from, bytes, kind);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  static auto* const next = behind(&cudaMemcpyAsync, "cudaMemcpyAsync");
  // To memory that isn't pinned it waits. Kinds that leave the host out don't.
  if (reachesHost(kind)) count("cudaMemcpyAsync to the host");
  return next(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  static auto* const next = behind(&cudaMemcpy2DAsync, "cudaMemcpy2DAsync");
  if (reachesHost(kind)) count("cudaMemcpy2DAsync to the host");
  return next(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

// They may wait for the device, and do where memory is short.
cudaError_t cudaMalloc(void** data, size_t bytes) {
  using Function = cudaError_t(void**, size_t);  // the header has a template as well
  static auto* const next = behind(static_cast<Function*>(&cudaMalloc), "cudaMalloc");
  count("cudaMalloc");
  return next(data, bytes);
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int flags) {
  using Function = cudaError_t(void**, size_t, unsigned int);
  static auto* const next = behind(static_cast<Function*>(&cudaHostAlloc), "cudaHostAlloc");
  count("cudaHostAlloc");
  return next(data, bytes, flags);
}

cudaError_t cudaFree(void* data) {
  static auto* const next = behind(&cudaFree, "cudaFree");
  count("cudaFree");
  return next(data);
}

cudaError_t cudaFreeHost(void* data) {
  static auto* const next = behind(&cudaFreeHost, "cudaFreeHost");
  count("cudaFreeHost");
  return next(data);
}

cudaError_t cudaGetDeviceCount(int* count) {
  static auto* const next = behind(&cudaGetDeviceCount, "cudaGetDeviceCount");
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    g_device_counts++;
  }
  return next(count);
}

}  // extern "C"

namespace remat::runtime::test {

std::map<std::string, int> takeWaitingCalls() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  std::map<std::string, int> taken;
  taken.swap(g_waiting);
  return taken;
}

int deviceCountCalls() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_device_counts;
}

}  // namespace remat::runtime::test
