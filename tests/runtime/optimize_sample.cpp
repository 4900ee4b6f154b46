// optimize_sample IN.pt OUT.pt [KIND...]: makes the forward of a saved module a region in which
// everything may be recomputed but what nodes of the given kinds (aten::matmul) make. The plan is
// of no use to anybody; tests want as many replays as there can be.

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include <exception>
#include <iostream>
#include <set>
#include <string>

#include "ir/outline.h"
#include "ir/region_order.h"
#include "passes/prepare.h"
#include "passes/rewriter.h"
#include "runtime/runtime.h"

int main(int argc, char** argv) {
  try {
    TORCH_CHECK(argc >= 3, "usage: optimize_sample IN.pt OUT.pt [KIND...]");
    remat::runtime::initialize();
    const torch::jit::Module module = torch::jit::load(argv[1]);
    const std::set<std::string> kinds(argv + 3, argv + argc);
    const auto prepared = remat::prepareGraph(module, "forward");
    std::vector<int32_t> keep;
    for (const auto* value : remat::ir::regionOrder(*prepared).values) {
      if (kinds.count(value->node()->kind().toQualString()) != 0) {
        keep.push_back(remat::ir::regionOrder(*prepared).value_ids.at(value));
      }
    }
    torch::jit::Module optimized = remat::ir::cloneForRewrite(module);
    remat::ir::outlineRegion(optimized, "forward", remat::rewriteRegion(prepared, {keep}));
    optimized.save(argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
