#include "ir/names.h"

namespace remat::ir {

std::string regionMethodName(const std::string& method, int n) {
  return "remat_region_" + method + "_" + std::to_string(n);
}

std::string originalMethodName(const std::string& method) { return "remat_original_" + method; }

}  // namespace remat::ir
