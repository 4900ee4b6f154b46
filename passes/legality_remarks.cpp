#include <llvm/ADT/SmallSet.h>

#include "passes/legality.h"

namespace remat {
namespace {

ir::Remark remarkOf(const Legality::Verdict& verdict, const Refusal& refusal, int64_t bytes) {
  return {refusal.reason, verdict.op,          verdict.module_path,
          verdict.source, refusal.explanation, bytes};
}

/// By storage: whether some autograd node saved it.
std::vector<char> savedStorages(const ir::Profile& profile) {
  std::vector<char> saved(profile.storages.size(), 0);
  for (const ir::SlotProfile& slot : profile.slots) {
    if (slot.storage >= 0) saved[slot.storage] = 1;
  }
  return saved;
}

class SavedBytes {
 public:
  explicit SavedBytes(const ir::Profile& profile)
      : profile_(profile), saved_(savedStorages(profile)), inside_(profile.nodes.size()) {
    for (const ir::SlotProfile& slot : profile.slots) {
      if (slot.node >= 0 && slot.value < 0 && slot.cast_of < 0 && slot.storage >= 0)
        inside_[slot.node].insert(slot.storage);
    }
  }

  int64_t of(size_t node) const {
    llvm::SmallSet<int32_t, 4> storages;
    for (const int32_t value : profile_.nodes[node].outputs) {
      for (const int32_t storage : profile_.values[value].storages) {
        if (saved_[storage] != 0) storages.insert(storage);
      }
    }
    int64_t bytes = 0;
    for (const int32_t storage : storages) bytes += bytesOf(storage);
    return bytes;
  }

  /// What was saved inside of an opaque node.
  int64_t inside(size_t node) const {
    int64_t bytes = 0;
    for (const int32_t storage : inside_[node]) bytes += bytesOf(storage);
    return bytes;
  }

 private:
  int64_t bytesOf(int32_t storage) const {
    const ir::StorageProfile& entry = profile_.storages[storage];
    return entry.role == ir::StorageRole::kExternal ? 0 : entry.bytes;
  }

  const ir::Profile& profile_;
  std::vector<char> saved_;
  std::vector<llvm::SmallSet<int32_t, 4>> inside_;  ///< by profile node
};

bool isOpaque(const Legality::Verdict& verdict) {
  return verdict.op == "prim::Loop" || verdict.op == "prim::Enter";
}

}  // namespace

std::vector<ir::Remark> Legality::remarks() const {
  std::vector<ir::Remark> remarks;
  for (const Verdict& verdict : verdicts_) {
    for (const Refusal& refusal : verdict.refusals)
      remarks.push_back(remarkOf(verdict, refusal, 0));
  }
  return remarks;
}

std::vector<ir::Remark> Legality::remarks(const ir::Profile& profile) const {
  const SavedBytes saved(profile);
  std::vector<ir::Remark> remarks;
  for (size_t i = 0; i < profile.nodes.size(); ++i) {
    const Verdict& verdict = verdicts_.at(profile.nodes[i].program_index);
    const int64_t bytes = saved.of(i) + (isOpaque(verdict) ? saved.inside(i) : 0);
    for (const Refusal& refusal : verdict.refusals) {
      if (refusal.evident) continue;
      if (bytes > 0 || refusal.worth_a_remark) remarks.push_back(remarkOf(verdict, refusal, bytes));
    }
  }
  return remarks;
}

}  // namespace remat
