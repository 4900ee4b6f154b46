#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/profile.h"
#include "ir/remark.h"

namespace torch::jit {
struct Graph;
struct Module;
}  // namespace torch::jit

namespace remat {

struct LegalityOptions {
  std::vector<std::string> allow_ops;          ///< unknown ops that may be replayed
  const torch::jit::Module* module = nullptr;  ///< tells which attributes are one tensor
};

/// One reason why a node may not be replayed.
struct Refusal {
  ir::Reason reason;
  std::string explanation;  ///< `aten::relu_ writes its input`
  bool worth_a_remark;      ///< also where the node saves nothing
  bool evident = false;     ///< what the method returns stays: never worth one
};

/// For each node of a prepared graph (ids by ir::regionOrder) all reasons why it may not be
/// replayed. Stale as soon as the graph changes.
class Legality {
 public:
  struct Verdict {
    std::string op;
    std::string module_path;
    std::string source;
    bool replayable = false;
    std::vector<Refusal> refusals;
  };

  explicit Legality(std::vector<Verdict> verdicts) : verdicts_(std::move(verdicts)) {}

  bool isReplayable(int32_t node) const { return verdicts_.at(node).replayable; }
  const Verdict& verdict(int32_t node) const { return verdicts_.at(node); }
  size_t size() const { return verdicts_.size(); }

  /// Every reason for every node, in program order.
  std::vector<ir::Remark> remarks() const;
  /// The reasons for nodes that the profiled step executed, with the bytes that stay in memory for
  /// it: of those storages that the node made and some autograd node saved, and of what an opaque
  /// node saved inside. Where nothing is saved, reasons that matter only for saving are left out.
  std::vector<ir::Remark> remarks(const ir::Profile& profile) const;

 private:
  std::vector<Verdict> verdicts_;
};

/// The rules, each of which gives a reason of its own:
///
/// - in-place-write      the op writes an input;
/// - hidden-write        it writes what no schema shows (running statistics of native norms), or a
/// list or
///                       dict, or an embedding's weight;
/// - read-after-write    bytes that it reads or made are written after it ran: a replay would read,
/// or make,
///                       other bytes. A write to an attribute counts for readers of that attribute
///                       only, and the running statistics of a norm not for the norm itself, which
///                       the runtime replays without them;
/// - random              it draws numbers that no replay repeats; attention and recurrent nets only
/// if their
///                       dropout is not the constant 0;
/// - side-effect         print, raise, attribute set, fork, rpc, a `with` statement;
/// - data-dependent-shape
/// - escaping-alias      its result shares bytes with what leaves the region;
/// - unknown-op          neither in passes/replay_table.h nor allowed, or code that the interpreter
/// runs whole.
///
/// A structural node is replayable without being listed; constants and branches have no verdict of
/// their own.
Legality analyzeLegality(const std::shared_ptr<torch::jit::Graph>& graph,
                         const LegalityOptions& options);

}  // namespace remat
