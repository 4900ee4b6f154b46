#pragma once

#include <memory>

#include "runtime/region_program.h"

namespace torch::jit {
struct CompilationUnit;
struct Function;
}  // namespace torch::jit

namespace remat::runtime {

/// The compiled form of a region method, compiled on its first call. A function that is gone and
/// whose address was taken by another one is told apart by its compilation unit.
std::shared_ptr<const RegionProgram> programOf(
    torch::jit::Function& method, const std::shared_ptr<torch::jit::CompilationUnit>& owner);

}  // namespace remat::runtime
