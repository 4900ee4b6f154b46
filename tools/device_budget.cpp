#include "tools/device_budget.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "ir/profile.h"
#include "ir/remark.h"
#include "passes/retarget.h"
#include "passes/value_tensors.h"
#include "tools/budget.h"

namespace remat::tools {
namespace {

/// Bytes of the tensors' storages, each counted once.
class StorageSum {
 public:
  explicit StorageSum(int64_t rounding) : rounding_(rounding) {}

  int64_t add(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return 0;
    const bool is_new = seen_.insert(tensor.storage().unsafeGetStorageImpl()).second;
    return is_new ? ir::roundedUp(static_cast<int64_t>(tensor.storage().nbytes()), rounding_) : 0;
  }

 private:
  int64_t rounding_;
  std::set<const c10::StorageImpl*> seen_;
};

std::string line(const char* sign, const char* what, int64_t bytes) {
  char text[96];
  std::snprintf(text, sizeof text, "%s %-28s %11s\n", sign, what, ir::formatBytes(bytes).c_str());
  return text;
}

}  // namespace

MemoryCapacity readCapacity(const MemorySize& size, const DeviceMemory& memory) {
  MemoryCapacity capacity;
  capacity.bytes = size.share > 0
                       ? static_cast<int64_t>(size.share * static_cast<double>(memory.total))
                       : size.bytes;
  capacity.outside = std::max<int64_t>(0, memory.outside());
  capacity.outside_text = "context, libraries, others";
  capacity.fragmentation = kFragmentationShare;
  capacity.rounding = kCudaRounding;
  return capacity;
}

int64_t DeviceBudget::memoryFor(int64_t bytes) const {
  return fixed_bytes +
         static_cast<int64_t>(std::ceil(static_cast<double>(bytes) / (1 - fragmentation)));
}

DeviceBudget deviceBudget(const MemoryCapacity& capacity, const std::string& optimizer,
                          int64_t reserve, const torch::jit::Module& module,
                          const std::vector<c10::IValue>& inputs) {
  StorageSum storages(capacity.rounding);
  int64_t parameters = 0;
  int64_t buffers = 0;
  int64_t arguments = 0;
  double state = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    const int64_t bytes = storages.add(parameter);
    parameters += bytes;
    if (bytes == 0 || !parameter.requires_grad()) continue;
    state += static_cast<double>(parameter.numel()) *
             optimizerBytesPerElement(optimizer, static_cast<int64_t>(parameter.element_size()));
  }
  for (const at::Tensor& buffer : module.buffers()) buffers += storages.add(buffer);
  for (const c10::IValue& input : inputs) {
    for (const at::Tensor& tensor : tensorsOf(input)) arguments += storages.add(tensor);
  }
  const auto optimizer_state = static_cast<int64_t>(state);
  DeviceBudget budget;
  budget.fragmentation = capacity.fragmentation;
  budget.fixed_bytes =
      capacity.outside + parameters + buffers + arguments + optimizer_state + reserve;
  const int64_t rest = capacity.bytes - budget.fixed_bytes;
  const auto fragmentation = static_cast<int64_t>(
      std::ceil(capacity.fragmentation * static_cast<double>(std::max<int64_t>(0, rest))));
  budget.step_bytes = rest - fragmentation;
  budget.text = line(" ", "device memory", capacity.bytes);
  const bool on_device = !capacity.outside_text.empty();
  if (on_device) budget.text += line("-", capacity.outside_text.c_str(), capacity.outside);
  budget.text += line("-", "parameters", parameters) + line("-", "buffers", buffers) +
                 line("-", "inputs", arguments) +
                 line("-", ("optimiser state (" + optimizer + ")").c_str(), optimizer_state) +
                 line("-", "reserve", reserve);
  if (on_device) {
    char share[32];
    std::snprintf(share, sizeof share, "fragmentation (%.0f %%)", 100 * capacity.fragmentation);
    budget.text += line("-", share, fragmentation);
  }
  budget.text += line("=", "left for a step", budget.step_bytes);
  budget.text += on_device ? "  (gradients are part of the step's peak; temporaries of the "
                             "optimiser are not counted: see --reserve)\n"
                           : "  (gradients are part of the step's peak; temporaries of the "
                             "optimiser, the device's context and\n"
                             "  fragmentation are not counted: see --reserve)\n";
  return budget;
}

}  // namespace remat::tools
