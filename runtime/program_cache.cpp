#include "runtime/program_cache.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <mutex>
#include <unordered_map>

namespace remat::runtime {
namespace {

struct Entry {
  std::weak_ptr<torch::jit::CompilationUnit> owner;
  std::shared_ptr<torch::jit::Graph> source;  ///< tells a function that was redefined
  std::shared_ptr<const RegionProgram> program;
};

struct Cache {
  std::mutex mutex;
  std::unordered_map<const torch::jit::Function*, Entry> entries;
};

Cache& cache() {
  // Never destroyed: threads may still run regions while the process ends.
  static Cache* instance = new Cache;
  return *instance;
}

}  // namespace

std::shared_ptr<const RegionProgram> programOf(
    torch::jit::Function& method, const std::shared_ptr<torch::jit::CompilationUnit>& owner) {
  const std::shared_ptr<torch::jit::Graph> source = torch::jit::toGraphFunction(method).graph();
  {
    const std::lock_guard<std::mutex> lock(cache().mutex);
    const auto found = cache().entries.find(&method);
    if (found != cache().entries.end() && found->second.owner.lock() == owner &&
        found->second.source == source) {
      return found->second.program;
    }
  }
  const auto inlined = source->copy();
  torch::jit::Inline(*inlined);
  Entry entry{owner, source, compileRegion(*inlined)};
  std::vector<Entry> expired;
  const std::lock_guard<std::mutex> lock(cache().mutex);
  for (auto it = cache().entries.begin(); it != cache().entries.end();) {
    if (it->second.owner.expired()) {
      expired.push_back(std::move(it->second));
      it = cache().entries.erase(it);
    } else {
      ++it;
    }
  }
  auto program = entry.program;
  cache().entries[&method] = std::move(entry);
  return program;
}

}  // namespace remat::runtime
