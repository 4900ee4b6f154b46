#include "passes/graph_hash.h"

#include <llvm/Support/Format.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Support/xxhash.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/dump.h"

namespace remat {

std::string graphHash(const torch::jit::Graph& graph) { return textHash(ir::dumpGraph(graph)); }

std::string textHash(const std::string& text) {
  std::string digits;
  llvm::raw_string_ostream(digits) << llvm::format_hex_no_prefix(llvm::xxHash64(text), 16);
  return digits;
}

}  // namespace remat
