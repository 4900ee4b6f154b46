#include "tools/device_budget.h"

#include <cstdio>
#include <set>

#include "ir/remark.h"
#include "passes/value_tensors.h"
#include "tools/budget.h"

namespace remat::tools {
namespace {

/// Bytes of the tensors' storages, each counted once.
class StorageSum {
 public:
  int64_t add(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return 0;
    const bool is_new = seen_.insert(tensor.storage().unsafeGetStorageImpl()).second;
    return is_new ? static_cast<int64_t>(tensor.storage().nbytes()) : 0;
  }

 private:
  std::set<const c10::StorageImpl*> seen_;
};

std::string line(const char* sign, const char* what, int64_t bytes) {
  char text[96];
  std::snprintf(text, sizeof text, "%s %-28s %11s\n", sign, what, ir::formatBytes(bytes).c_str());
  return text;
}

}  // namespace

DeviceBudget deviceBudget(int64_t device_memory, const std::string& optimizer, int64_t reserve,
                          const torch::jit::Module& module,
                          const std::vector<c10::IValue>& inputs) {
  StorageSum storages;
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
  budget.step_bytes = device_memory - parameters - buffers - arguments - optimizer_state - reserve;
  budget.text = line(" ", "device memory", device_memory) + line("-", "parameters", parameters) +
                line("-", "buffers", buffers) + line("-", "inputs", arguments) +
                line("-", ("optimiser state (" + optimizer + ")").c_str(), optimizer_state) +
                line("-", "reserve", reserve) + line("=", "left for a step", budget.step_bytes) +
                "  (gradients are part of the step's peak; temporaries of the optimiser, the "
                "device's context and\n"
                "  fragmentation are not counted: see --reserve)\n";
  return budget;
}

}  // namespace remat::tools
