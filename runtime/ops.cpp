#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include "ir/names.h"
#include "runtime/attention.h"
#include "runtime/dropout.h"
#include "runtime/execution.h"
#include "runtime/profiler_range.h"
#include "runtime/program_cache.h"
#include "runtime/runtime.h"
#include "runtime/written_copy.h"

namespace remat::runtime {
namespace {

using torch::jit::Operator;
using torch::jit::Stack;

/// The one result of a region as a value: methods return one, graphs any number.
c10::IValue single(std::vector<c10::IValue> results) {
  TORCH_INTERNAL_ASSERT(results.size() == 1, "a region method returns one value");
  return std::move(results[0]);
}

/// The elements of the argument tuple, taken out of it where nobody else holds it: what is dead
/// after its first use in the region is freed then.
std::vector<c10::IValue> takeElements(c10::IValue tuple) {
  auto elements = tuple.toTuple();
  tuple = c10::IValue();
  if (elements.use_count() == 1) {
    return std::move(*elements).elements().vec();
  }
  return elements->elements().vec();
}

/// remat::checkpoint(Any self, str region, Any args, int version) -> Any
void checkpoint(Stack& stack) {
  const int64_t version = torch::jit::pop(stack).toInt();
  std::vector<c10::IValue> rest = takeElements(torch::jit::pop(stack));
  const std::string region = torch::jit::pop(stack).toStringRef();
  const c10::IValue self = torch::jit::pop(stack);
  TORCH_CHECK(version == ir::kFormatVersion, "remat: the model was written in format version ",
              version, ", this runtime knows version ", ir::kFormatVersion,
              ". Use the runtime that came with the remat-opt ",
              "that wrote it, or optimise the model again");
  TORCH_CHECK(self.isObject(), "remat: ", ir::kCheckpoint,
              " was called on something that is no module");
  const auto object = self.toObject();
  torch::jit::Function* method = object->type()->findMethod(region);
  TORCH_CHECK(method != nullptr, "remat: module ", object->type()->repr_str(), " has no method ",
              region,
              ", which holds its checkpointed region. torch.jit.freeze and optimize_for_inference "
              "drop methods that "
              "are called by name: take Remat out first (remat-opt strip), then freeze");
  std::vector<c10::IValue> arguments{self};
  for (auto& argument : rest) {
    arguments.push_back(std::move(argument));
  }
  rest.clear();
  const auto program = programOf(*method, object->compilation_unit());
  const ProfilerRange range(ProfilerRange::Kind::kRegion, region);
  stack.push_back(single(Execution(program).run(std::move(arguments))));
}

/// remat::region: the in-memory form, with the region as the node's subgraph.
torch::jit::Operation regionOperation(const torch::jit::Node* node) {
  const auto program = compileRegion(*node->g(c10::attr::Subgraph));
  const size_t inputs = program->inputs.size();
  return [program, inputs](Stack& stack) {
    std::vector<c10::IValue> arguments(
        std::make_move_iterator(stack.end() - static_cast<int64_t>(inputs)),
        std::make_move_iterator(stack.end()));
    torch::jit::drop(stack, inputs);
    const ProfilerRange range(ProfilerRange::Kind::kRegion, ir::kRegion);
    for (auto& result : Execution(program).run(std::move(arguments))) {
      stack.push_back(std::move(result));
    }
  };
}

void dropoutMaskOp(Stack& stack) {
  const bool train = torch::jit::pop(stack).toBool();
  const double p = torch::jit::pop(stack).toDouble();
  const at::Tensor x = torch::jit::pop(stack).toTensor();
  stack.emplace_back(dropoutMask(x, p, train, std::nullopt));
}

void dropoutOp(Stack& stack) {
  const bool train = torch::jit::pop(stack).toBool();
  const double p = torch::jit::pop(stack).toDouble();
  const at::Tensor mask = torch::jit::pop(stack).toTensor();
  const at::Tensor x = torch::jit::pop(stack).toTensor();
  stack.emplace_back(applyDropout(x, mask, p, train));
}

/// The last arguments of both ops, and the query and key before them; `value` where it stands
/// between these.
Attention popAttention(Stack& stack, at::Tensor* value) {
  Attention attention;
  attention.grouped = torch::jit::pop(stack).toBool();
  attention.scale = torch::jit::pop(stack).toOptional<double>();
  attention.causal = torch::jit::pop(stack).toBool();
  attention.dropout = torch::jit::pop(stack).toDouble();
  attention.mask = torch::jit::pop(stack).toOptional<at::Tensor>();
  if (value != nullptr) *value = torch::jit::pop(stack).toTensor();
  attention.key = torch::jit::pop(stack).toTensor();
  attention.query = torch::jit::pop(stack).toTensor();
  return attention;
}

void attentionWeightsOp(Stack& stack) {
  stack.emplace_back(attentionWeights(popAttention(stack, nullptr)));
}

void attentionOp(Stack& stack) {
  at::Tensor value;
  const Attention attention = popAttention(stack, &value);
  const at::Tensor weights = torch::jit::pop(stack).toTensor();
  stack.emplace_back(applyAttention(weights, attention, value));
}

template <at::Tensor (*Function)(const at::Tensor&, const at::Tensor&, const at::Scalar&)>
void scaledOp(Stack& stack) {
  const at::Scalar alpha = torch::jit::pop(stack).toScalar();
  const at::Tensor other = torch::jit::pop(stack).toTensor();
  const at::Tensor x = torch::jit::pop(stack).toTensor();
  stack.emplace_back(Function(x, other, alpha));
}

template <at::Tensor (*Function)(const at::Tensor&, const at::Tensor&)>
void binaryOp(Stack& stack) {
  const at::Tensor other = torch::jit::pop(stack).toTensor();
  const at::Tensor x = torch::jit::pop(stack).toTensor();
  stack.emplace_back(Function(x, other));
}

const torch::jit::RegisterOperators kOperators({
    Operator("remat::checkpoint(Any self, str region, Any args, int version) -> Any", checkpoint,
             c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(c10::Symbol::fromQualString(ir::kRegion), regionOperation,
             c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "remat::keep(Tensor(a) x) -> Tensor(a)", [](Stack&) {},
        c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator(
        "remat::keep.list(Tensor(a)[] x) -> Tensor(a)[]", [](Stack&) {},
        c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator(
        "remat::regenerate(Tensor(a) x) -> Tensor(a)", [](Stack&) {},
        c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator(
        "remat::drop(Tensor(a) x) -> Tensor(a)", [](Stack&) {},
        c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator(
        "remat::drop.list(Tensor(a)[] x) -> Tensor(a)[]", [](Stack&) {},
        c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator(
        "remat::use(Tensor x) -> ()", [](Stack& stack) { torch::jit::drop(stack, 1); },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator("remat::dropout_mask(Tensor x, float p, bool train) -> Tensor", dropoutMaskOp,
             c10::AliasAnalysisKind::CONSERVATIVE),
    Operator("remat::dropout(Tensor(a) x, Tensor mask, float p, bool train) -> Tensor(a)",
             dropoutOp, c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator("remat::add(Tensor x, Tensor other, Scalar alpha) -> Tensor", scaledOp<addToCopy>,
             c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator("remat::sub(Tensor x, Tensor other, Scalar alpha) -> Tensor", scaledOp<subFromCopy>,
             c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator("remat::mul(Tensor x, Tensor other) -> Tensor", binaryOp<mulCopy>,
             c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator("remat::div(Tensor x, Tensor other) -> Tensor", binaryOp<divCopy>,
             c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator("remat::attention_weights(Tensor query, Tensor key, Tensor? attn_mask, float "
             "dropout_p, bool is_causal, float? scale, bool enable_gqa) -> Tensor",
             attentionWeightsOp, c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator("remat::attention(Tensor weights, Tensor query, Tensor key, Tensor value, Tensor? "
             "attn_mask, float dropout_p, bool is_causal, float? scale, bool enable_gqa) -> Tensor",
             attentionOp, c10::AliasAnalysisKind::FROM_SCHEMA),
});

}  // namespace

void initialize() {}

}  // namespace remat::runtime
