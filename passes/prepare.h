#pragma once

#include <memory>
#include <string>

namespace torch::jit {
struct Graph;
struct Module;
}  // namespace torch::jit

namespace remat {

/// The graph of a method in the form that everything else works on; the module stays as it was. All
/// calls are inlined, constants folded, dropout masks explicit (passes/explicit_dropout.h), lists
/// built in one step and in-place ops made functional where nobody can tell
/// (passes/functionalize.h), and tensor values named after the module that made them
/// (`layer2_0_relu`). Of an optimised method it is the original's.
///
/// `on_cpu`: whether the step is planned for the CPU, where attention that drops out is taken apart
/// (passes/explicit_dropout.h).
///
/// Running it gives the outputs, gradients, buffers and random numbers of the method, bit for bit.
/// Throws c10::Error if the module has no such method.
std::shared_ptr<torch::jit::Graph> prepareGraph(const torch::jit::Module& module,
                                                const std::string& method, bool on_cpu = true);

/// The part of prepareGraph that comes after inlining, on a graph of one's own. Returns whether
/// anything changed.
bool prepareInlined(const std::shared_ptr<torch::jit::Graph>& graph, bool on_cpu = true);

}  // namespace remat
