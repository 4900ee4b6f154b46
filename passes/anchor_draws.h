#pragma once

namespace torch::jit {
struct Graph;
}

namespace remat {

/// Puts a remat::use behind each draw whose results only dead code reads, or nothing does. Whoever
/// loads an archive removes dead code, but leaves what seems to reach a live value; the next one
/// who loads what the first one saved removes more. A region drawn from a loaded model is to draw
/// as that model does, however often it is saved.
void anchorDraws(torch::jit::Graph& region);

}  // namespace remat
