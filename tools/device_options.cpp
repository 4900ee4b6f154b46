#include "tools/device_options.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "passes/device_memory.h"
#include "passes/measured_roofline.h"
#include "passes/retarget.h"
#include "tools/errors.h"

namespace remat::tools {
namespace {

/// What `option` says, with an index where it is a GPU.
c10::Device parseDevice(const std::string& option, const std::string& text) {
  c10::Device device(c10::kCPU);
  try {
    device = c10::Device(text);
  } catch (const std::exception&) {
    throw usage(option + " '" + text + "' is no device; say cpu, cuda or cuda:N");
  }
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  if (!device.is_cuda())
    throw usage(option + " '" + text + "' is not supported; say cpu, cuda or cuda:N");
  return {device.type(), device.has_index() ? device.index() : c10::DeviceIndex{0}};
}

int deviceCount(c10::DeviceType type) {
  if (!c10::impl::hasDeviceGuardImpl(type)) return 0;
  return static_cast<int>(c10::impl::VirtualGuardImpl(type).deviceCount());
}

bool isHere(c10::Device device) {
  return device.is_cpu() || device.index() < deviceCount(device.type());
}

at::ScalarType productType(const StepOptions& step) {
  if (step.autocast.empty()) return at::kFloat;
  return step.autocast == "float16" ? at::kHalf : at::kBFloat16;
}

}  // namespace

c10::Device deviceOption(const std::string& text) {
  const c10::Device device = parseDevice("--device", text);
  if (!isHere(device)) {
    const int count = deviceCount(device.type());
    throw refused("--device " + text + ": " +
                  (count == 0 ? "no CUDA device is here"
                              : "the last one is cuda:" + std::to_string(count - 1)) +
                  "; use --device cpu, and --plan-for " + text + " to plan for it from there");
  }
  if (!device.is_cpu()) at::globalContext().lazyInitDevice(device.type());
  return device;
}

void prepareDeterministicLibraries(c10::Device device) {
  if (!device.is_cpu()) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

void applyTarget(const RunOptions& run, const PlanningOptions& planning, OptimizeOptions& options) {
  if (planning.plan_for.empty()) {
    if (!planning.roofline.empty()) {
      throw usage("--roofline needs --plan-for: on --device times are measured");
    }
    return;
  }
  const c10::Device target = parseDevice("--plan-for", planning.plan_for);
  if (target.is_cpu()) {
    throw usage("--plan-for cpu: leave it out, the CPU is planned for as it is measured");
  }
  if (!parseDevice("--device", run.device).is_cpu()) {
    throw usage("--plan-for is for steps on the CPU; leave it out with --device " + run.device);
  }
  options.plan_for = target.str();
  if (planning.roofline.empty()) {
    if (isHere(target)) return;
    throw refused("--plan-for " + planning.plan_for +
                  ": no such device is here to measure; give --roofline FLOPS,BYTES_PER_S, what "
                  "its data sheet says in the dtype that is trained in, as 67T,4.8T");
  }
  try {
    options.roofline = parseRoofline(planning.roofline);
  } catch (const std::invalid_argument& error) {
    throw usage(std::string("--roofline ") + error.what());
  }
}

void measureTarget(OptimizeOptions& options) {
  if (options.plan_for.empty() || options.roofline.known()) return;
  const c10::Device target(options.plan_for);
  if (options.progress) options.progress("measuring " + options.plan_for);
  at::globalContext().lazyInitDevice(target.type());
  options.roofline = measureRoofline(target, productType(options.step));
}

MemoryCapacity memoryCapacity(const MemorySize& size, const OptimizeOptions& options) {
  const c10::Device target(options.target());
  MemoryCapacity capacity;
  capacity.bytes = size.bytes;
  if (target.is_cpu()) {
    if (size.share > 0) {
      throw usage(
          "--device-memory in percent is of a GPU's memory; say --device cuda, or give bytes, as "
          "24GiB");
    }
    return capacity;
  }
  capacity.rounding = allocationRounding(options.target());
  capacity.fragmentation = kFragmentationShare;
  if (!isHere(target)) {
    if (size.share > 0) {
      throw refused("--device-memory in percent: " + options.target() +
                    " is not here to read its memory from; give bytes, as 24GiB");
    }
    capacity.outside = kAssumedContext;
    capacity.outside_text = "context (assumed)";
    return capacity;
  }
  at::globalContext().lazyInitDevice(target.type());
  return readCapacity(size, deviceMemory(target));
}

}  // namespace remat::tools
