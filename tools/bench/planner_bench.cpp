#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include "passes/planner.h"
#include "passes/simulator.h"
#include "tests/passes/synthetic.h"

// Plans one budget of one synthetic step and prints what that took, as one line of JSON:
// planner_bench chain|residual|transformer NODES BUDGET, where BUDGET is a share of the peak in
// per cent, or `min`. One case a process, so that its peak memory is the case's own.

namespace {

using remat::PlanningInput;

PlanningInput make(const std::string& kind, int size) {
  if (kind == "chain") return remat::testing::uniformChain(size, int64_t{16} << 20, 0.004);
  if (kind == "transformer") return remat::testing::transformer(size, 384);
  // Four stages of equal length: the sizes halve from stage to stage, as in a ResNet.
  return remat::testing::bottleneckNet(std::vector<int>(4, size));
}

/// The largest step of that kind with at most `nodes` nodes. Nodes are linear in the size.
PlanningInput sized(const std::string& kind, size_t nodes) {
  const size_t one = make(kind, 1).profile.nodes.size();
  const size_t each = make(kind, 2).profile.nodes.size() - one;
  return make(kind, nodes <= one ? 1 : 1 + static_cast<int>((nodes - one) / each));
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Bytes of the process's memory at its most. The kernel's other figure, ru_maxrss, is never below
/// what the parent had when it started this process.
int64_t peakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

llvm::json::Object measure(const std::string& kind, size_t nodes, std::optional<double> share) {
  const PlanningInput input = sized(kind, nodes);
  const int64_t original = input.profile.peak_bytes;
  const int64_t memory_before = peakMemory();
  const auto start = std::chrono::steady_clock::now();
  remat::Planner planner(input);
  const double setup_seconds = secondsSince(start);
  const remat::ir::Plan plan =
      share ? planner.plan(static_cast<int64_t>(*share * static_cast<double>(original)))
            : planner.minimum();
  const double seconds = secondsSince(start);
  return llvm::json::Object{
      {"graph", kind},
      {"nodes", static_cast<int64_t>(input.profile.nodes.size())},
      {"decisions", static_cast<int64_t>(remat::Simulator(input).candidates().size())},
      {"original_peak", original},
      {"budget", plan.budget},
      {"predicted_peak", plan.predicted_peak},
      {"peak_bound", plan.peak_bound},
      {"recompute_share", plan.recompute_share},
      {"lower_bound_share", plan.lower_bound_share},
      {"setup_seconds", setup_seconds},
      {"seconds", seconds},
      {"peak_memory", peakMemory()},
      {"memory_before", memory_before},
  };
}

int fail(const std::string& message) {
  std::fprintf(stderr, "planner_bench: %s\n", message.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return fail("usage: planner_bench chain|residual|transformer NODES BUDGET");
  const std::string kind = argv[1];
  if (kind != "chain" && kind != "residual" && kind != "transformer") {
    return fail("'" + kind + "' is none of chain, residual, transformer");
  }
  const long nodes = std::strtol(argv[2], nullptr, 10);
  if (nodes < 1 || nodes > 1000000) return fail(std::string("no node count: ") + argv[2]);
  std::optional<double> share;
  if (std::string(argv[3]) != "min") {
    share = std::strtod(argv[3], nullptr) / 100;
    if (!(*share > 0 && *share <= 1)) return fail(std::string("no budget: ") + argv[3]);
  }
  try {
    llvm::outs() << llvm::json::Value(measure(kind, static_cast<size_t>(nodes), share)) << '\n';
  } catch (const std::exception& error) {
    return fail(error.what());
  }
  return 0;
}
