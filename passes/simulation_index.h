#pragma once

#include <cstdint>
#include <vector>

#include "passes/simulation_model.h"

namespace remat {

/// Who is whose neighbour in a SimulationModel, and when slots are unpacked and released. Instants
/// are Timeline's: the model's nodes, then its backward ops; `end` stands for "never".
struct SimulationIndex {
  explicit SimulationIndex(const SimulationModel& model);

  int32_t forward;  ///< instants of the forward
  int32_t end;      ///< all instants

  Rows value_consumers;  ///< nodes
  Rows value_slots;      ///< slots that match the value
  Rows storage_values;   ///< values that hold the storage
  Rows storage_slots;    ///< that hold the storage, or a cast of it
  Rows slot_unpacks;     ///< instants, ascending

  std::vector<int32_t> slot_release;  ///< by slot: instant
  std::vector<int32_t> slot_use_end;  ///< by slot: instant after which no node computes with what
                                      ///< was unpacked from it; -1: never unpacked
  std::vector<int32_t> use_end;       ///< by backward op: instant of the next end of an apply
};

}  // namespace remat
