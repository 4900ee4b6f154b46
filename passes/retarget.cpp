#include "passes/retarget.h"

#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSwitch.h>

#include <algorithm>
#include <set>

#include "passes/evaluated_plan.h"
#include "passes/remat.h"
#include "passes/roofline.h"

namespace remat {
namespace {

bool savesOther(llvm::StringRef op) {
  return llvm::StringSwitch<bool>(op)
      .Cases("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::instance_norm", true)
      .Cases("aten::scaled_dot_product_attention", "aten::_native_multi_head_attention", true)
      .Cases("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", true)
      .Cases("aten::ctc_loss", "aten::embedding_bag", true)
      .Default(false);
}

}  // namespace

int64_t allocationRounding(const std::string& device) {
  return llvm::StringRef(device).startswith("cuda") ? kCudaRounding : 1;
}

ir::Profile retarget(const ir::Profile& profile, const std::string& device,
                     const ir::Roofline& roofline) {
  if (!profile.extrapolated_from.empty()) {
    throw RematError(
        "the profile was extrapolated to its batch, and holds no shapes of it to count operations "
        "by; record it anew for " +
        device);
  }
  if (profile.device != "cpu") {
    throw RematError("the profile was recorded on " + profile.device +
                     ", and only one of the CPU can be taken for another device; record it on cpu");
  }
  ir::Profile result = profile;
  result.device = device;
  result.recorded_on = profile.device;
  result.rounding = allocationRounding(device);
  for (ir::StorageProfile& storage : result.storages) {
    storage.bytes = ir::roundedUp(storage.bytes, result.rounding);
  }
  applyRoofline(roofline, result);
  const int64_t moved = simulatedPeak(result) - simulatedPeak(profile);
  result.peak_bytes = std::max<int64_t>(0, profile.peak_bytes + moved);
  result.baseline_peak_bytes = std::max<int64_t>(0, profile.baseline_peak_bytes + moved);
  return result;
}

std::vector<std::string> otherInternals(const ir::Profile& profile) {
  std::set<std::string> found;
  if (!profile.recorded_on.empty()) {
    for (const ir::NodeProfile& node : profile.nodes) {
      if (savesOther(node.op)) found.insert(node.op);
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace remat
