#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace torch::jit {
struct Graph;
struct Module;
struct Node;
struct Value;
}  // namespace torch::jit

namespace remat::ir {

/// What each value of a graph may refer to: an Andersen-style analysis, insensitive to order, over
/// abstract objects. An object is what one node makes, what one attribute holds, all arguments
/// together (a caller may pass the same tensor twice), or everything unknown together.
///
/// Sharper than LibTorch's AliasDb where legality needs it: attributes are apart from each other,
/// and an element of a list from what other lists hold. It also knows ops that hand their input
/// through although their schema says otherwise (`aten::dropout` in evaluation mode,
/// `aten::type_as`, `aten::einsum`, …). Stale as soon as the graph changes.
class PointsTo {
 public:
  using Object = int32_t;
  using Objects = std::vector<Object>;  ///< sorted

  /// With `module` (of the type that the graph's self has) two attributes that hold one tensor are
  /// one object.
  explicit PointsTo(torch::jit::Graph& graph, const torch::jit::Module* module = nullptr);

  /// Everything that can be reached from the value, through containers.
  const Objects& reach(const torch::jit::Value* value) const;

  /// What `node`, its blocks included, may write: in-place arguments, containers, running
  /// statistics. Setting an attribute writes no object: it binds a name anew.
  Objects writes(const torch::jit::Node& node) const;

  /// What leaves the graph: reachable from its results, from attributes that are set, from
  /// containers that came from outside, or handed to a fork or to code that nobody looked into.
  const Objects& escaping() const { return escaping_; }

  /// `layer1.0.bn1.running_mean`; empty if the object is no attribute.
  const std::string& attributePath(Object object) const { return paths_.at(object); }

 private:
  friend class PointsToBuilder;
  std::unordered_map<const torch::jit::Value*, Objects>
      pointees_;  ///< without containers' contents
  std::unordered_map<const torch::jit::Value*, Objects> reach_;
  std::vector<std::string> paths_;  ///< by object
  Objects escaping_;
  Objects outside_;  ///< attributes, arguments and the unknown: what a write to something unknown
                     ///< may hit
};

}  // namespace remat::ir
