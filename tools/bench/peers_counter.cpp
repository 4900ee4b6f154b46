#include <torch/library.h>

#include <cstdint>
#include <tuple>

#include "runtime/memory_statistics.h"
#include "runtime/statistics.h"

// What peers_worker.py measures with: bytes of all CPU tensors of the process, whoever made them,
// from the moment this library is loaded; and the seconds that Remat's regions spent.
namespace {

std::tuple<double, double> takeStatistics() {
  const remat::runtime::StepStatistics taken = remat::runtime::takeStatistics();
  return {taken.forward_seconds, taken.replay_seconds};
}

TORCH_LIBRARY(remat_bench, library) {
  remat::runtime::installMemoryStatistics();
  library.def("live_bytes", &remat::runtime::liveBytes);
  library.def("peak_bytes", &remat::runtime::peakBytes);
  library.def("reset_peak", &remat::runtime::resetPeak);
  library.def("enable_statistics", &remat::runtime::enableStatistics);
  library.def("take_statistics", &takeStatistics);
}

}  // namespace
