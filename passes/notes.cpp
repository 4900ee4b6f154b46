#include "passes/notes.h"

#include <cstdio>
#include <set>

#include "passes/internals.h"
#include "passes/marks.h"

namespace remat {
namespace {

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f ms", seconds * 1e3);
  return text;
}

}  // namespace

std::string refusals(const std::vector<ir::Remark>& remarks, const ir::NodeProfile& node) {
  std::set<std::string> reasons;
  for (const ir::Remark& remark : remarks) {
    if (remark.op == node.op && remark.module_path == node.module_path &&
        remark.source == node.source) {
      reasons.insert(ir::reasonName(remark.reason));
    }
  }
  std::string text;
  for (const std::string& reason : reasons) {
    text += (text.empty() ? "" : ", ") + reason;
  }
  return text.empty() ? "may not be replayed" : text;
}

namespace {

/// Says on `value`, a result of a node whose internals are made again, what that spares.
void addRegenerated(const PlanningInput& input, int32_t value,
                    std::map<std::string, ir::ValueNote>& notes) {
  const ir::Profile& profile = input.profile;
  const ir::NodeProfile& node = profile.nodes[profile.values[value].producer];
  const ir::ValueProfile& internals = profile.values[node.outputs.back()];
  const int64_t bytes = profile.storages[internals.storages[0]].bytes;
  const auto [note, is_new] = notes.try_emplace(profile.values[value].name);
  if (!is_new) {
    note->second.reason += "; " + ir::formatBytes(bytes) + " inside of it made again";
    return;
  }
  note->second.bytes = bytes;
  note->second.reason = "inside of " + node.op + ", which takes " + milliseconds(node.seconds);
  note->second.module_path = node.module_path;
  note->second.source = node.source;
}

}  // namespace

std::map<std::string, ir::ValueNote> valueNotes(const PlanningInput& input, const ir::Plan& plan,
                                                const std::vector<ir::Remark>& remarks) {
  const ir::Profile& profile = input.profile;
  const std::vector<int32_t> roots = storageRoots(profile);
  const std::vector<char> recomputed = recomputedStorages(input, plan);
  std::vector<char> saved(profile.storages.size(), 0);
  for (const ir::SlotProfile& slot : profile.slots) {
    if (slot.storage >= 0) {
      saved[slot.storage] = 1;
    }
  }
  std::map<std::string, ir::ValueNote> notes;
  for (size_t storage = 0; storage < roots.size(); ++storage) {
    const bool mine =
        profile.storages[storage].role == ir::StorageRole::kValue && roots[storage] >= 0;
    if (!mine || (saved[storage] == 0 && recomputed[storage] == 0)) {
      continue;
    }
    const ir::ValueProfile& value = profile.values[roots[storage]];
    if (roots[storage] >= input.first_internal) continue;
    const ir::NodeProfile& node = profile.nodes[value.producer];
    ir::ValueNote note;
    note.kept = recomputed[storage] == 0;
    note.bytes = profile.storages[storage].bytes;
    note.module_path = node.module_path;
    note.source = node.source;
    if (!note.kept) {
      note.reason = node.op + " takes " + milliseconds(node.seconds);
      if (plan.keep[storage] == ir::kRecomputeEachTime) note.reason += ", for each use";
      if (!input.forced.empty() && input.forced[storage] == ir::kRecompute) {
        note.reason += ", as was asked for";
      }
    } else if (input.replayable[value.producer] == 0) {
      note.reason = refusals(remarks, node);
    } else if (!input.forced.empty() && input.forced[storage] == ir::kKeep) {
      note.reason = "as was asked for";
    } else if (note.bytes < input.minimum_bytes) {
      note.reason = ir::reasonName(ir::Reason::kBelowMinimumSaving);
    } else {
      note.reason = node.op + " would take " + milliseconds(node.seconds) + " again";
    }
    notes[value.name] = std::move(note);
  }
  for (const int32_t value : regeneratedValues(input, plan)) {
    addRegenerated(input, value, notes);
  }
  return notes;
}

}  // namespace remat
