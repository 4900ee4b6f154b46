#include "passes/simulation_index.h"

#include <algorithm>

namespace remat {
namespace {

Rows toRows(const std::vector<std::vector<int32_t>>& lists) {
  Rows rows;
  for (const std::vector<int32_t>& list : lists) {
    rows.beginRow();
    for (int32_t item : list) rows.push(item);
  }
  return rows;
}

/// For each of `count` columns the rows that hold it.
Rows transposed(const Rows& rows, size_t count) {
  std::vector<std::vector<int32_t>> columns(count);
  for (int32_t row = 0; row < rows.size(); ++row) {
    for (int32_t column : rows[row]) columns[column].push_back(row);
  }
  return toRows(columns);
}

}  // namespace

SimulationIndex::SimulationIndex(const SimulationModel& model)
    : forward(static_cast<int32_t>(model.nodes.size())),
      end(forward + static_cast<int32_t>(model.backward.size())),
      value_consumers(transposed(model.node_inputs, model.values.size())),
      storage_values(transposed(model.value_storages, model.storages.size())) {
  using Kind = SimulationModel::OpKind;
  std::vector<std::vector<int32_t>> of_value(model.values.size());
  std::vector<std::vector<int32_t>> of_storage(model.storages.size());
  for (size_t slot = 0; slot < model.slots.size(); ++slot) {
    const SimulationModel::Slot& from = model.slots[slot];
    if (from.value >= 0) of_value[from.value].push_back(static_cast<int32_t>(slot));
    of_storage[from.storage].push_back(static_cast<int32_t>(slot));
    if (from.cast >= 0) of_storage[from.cast].push_back(static_cast<int32_t>(slot));
  }
  value_slots = toRows(of_value);
  storage_slots = toRows(of_storage);

  use_end.assign(model.backward.size(), end);
  int32_t next = end;
  for (size_t op = model.backward.size(); op-- > 0;) {
    if (model.backward[op].kind == Kind::kApplyEnd) next = forward + static_cast<int32_t>(op);
    use_end[op] = next;
  }
  slot_release.assign(model.slots.size(), end);
  slot_use_end.assign(model.slots.size(), -1);
  std::vector<std::vector<int32_t>> unpacks(model.slots.size());
  for (size_t i = 0; i < model.backward.size(); ++i) {
    const SimulationModel::BackwardOp& op = model.backward[i];
    if (op.kind == Kind::kRelease) slot_release[op.slot] = forward + static_cast<int32_t>(i);
    if (op.kind != Kind::kUnpack) continue;
    unpacks[op.slot].push_back(forward + static_cast<int32_t>(i));
    slot_use_end[op.slot] = std::max(slot_use_end[op.slot], use_end[i]);
  }
  slot_unpacks = toRows(unpacks);
}

}  // namespace remat
