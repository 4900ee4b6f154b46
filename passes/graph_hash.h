#pragma once

#include <string>

namespace torch::jit {
struct Graph;
}

namespace remat {

/// 16 hexadecimal digits of a graph's text (without source lines): the same on every machine.
std::string graphHash(const torch::jit::Graph& graph);

/// 16 hexadecimal digits of `text`.
std::string textHash(const std::string& text);

}  // namespace remat
