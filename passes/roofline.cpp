#include "passes/roofline.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/StringSwitch.h>
#include <llvm/Support/FormatVariadic.h>

#include <algorithm>

namespace remat {
namespace {

enum class Formula : uint8_t {
  kBytes,
  kConvolution,
  kTransposed,
  kAnyConvolution,
  kProduct,
  kAddedProduct,
  kAttention
};

Formula formulaOf(llvm::StringRef op) {
  return llvm::StringSwitch<Formula>(op)
      .Cases("aten::conv1d", "aten::conv2d", "aten::conv3d", Formula::kConvolution)
      .Cases("aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d",
             Formula::kTransposed)
      .Cases("aten::_convolution", "aten::convolution", Formula::kAnyConvolution)
      .Cases("aten::mm", "aten::bmm", "aten::matmul", "aten::linear", Formula::kProduct)
      .Cases("aten::addmm", "aten::baddbmm", Formula::kAddedProduct)
      .Case("aten::scaled_dot_product_attention", Formula::kAttention)
      .Default(Formula::kBytes);
}

std::vector<TensorType> tensorsAmong(const ir::Profile& profile,
                                     const std::vector<int32_t>& values) {
  std::vector<TensorType> found;
  for (const int32_t value : values) {
    if (auto type = tensorType(profile.values[value].type)) found.push_back(std::move(*type));
  }
  return found;
}

/// Of a list of tensors what its storages hold: it doesn't say its shapes.
double bytesOf(const ir::Profile& profile, const ir::ValueProfile& value) {
  if (const auto type = tensorType(value.type)) return type->bytes();
  double bytes = 0;
  for (const int32_t storage : value.storages) {
    bytes += static_cast<double>(profile.storages[storage].bytes);
  }
  return bytes;
}

double product(llvm::ArrayRef<int64_t> sizes) {
  double result = 1;
  for (const int64_t size : sizes) result *= static_cast<double>(size);
  return result;
}

/// Elements of a weight for each entry of its first dimension.
double perChannel(const TensorType& weight) {
  return product(llvm::ArrayRef<int64_t>(weight.sizes).drop_front());
}

/// aten::_convolution doesn't say in its tensors whether it is transposed: then the channels of the
/// input are the weight's first dimension.
double convolutionFlops(Formula formula, const TensorType& input, const TensorType& weight,
                        const TensorType& output) {
  if (weight.sizes.size() < 3 || input.sizes.size() != weight.sizes.size()) return 0;
  const bool transposed = formula == Formula::kTransposed || (formula == Formula::kAnyConvolution &&
                                                              output.sizes[1] != weight.sizes[0]);
  return 2 * perChannel(weight) * (transposed ? input : output).elements();
}

double productFlops(const TensorType& left, const TensorType& output) {
  if (left.sizes.empty()) return 0;
  return 2 * output.elements() * static_cast<double>(left.sizes.back());
}

/// [..., L, E], [..., S, E], [..., S, Ev].
double attentionFlops(const TensorType& query, const TensorType& key, const TensorType& value) {
  if (query.sizes.size() < 2 || key.sizes.size() < 2 || value.sizes.empty()) return 0;
  const auto keys = static_cast<double>(key.sizes[key.sizes.size() - 2]);
  const auto width = static_cast<double>(value.sizes.back());
  const double rows = product(llvm::ArrayRef<int64_t>(query.sizes).drop_back());
  return 2 * keys * (query.elements() + rows * width);
}

/// Whether every tensor that the node makes shares its bytes with one that goes in.
bool isView(const ir::Profile& profile, const ir::NodeProfile& node) {
  if (llvm::StringRef(node.op).endswith("_")) return false;  // writes its input
  for (const int32_t output : node.outputs) {
    for (const int32_t storage : profile.values[output].storages) {
      const bool shared = llvm::any_of(node.inputs, [&](int32_t input) {
        return llvm::is_contained(profile.values[input].storages, storage);
      });
      if (!shared) return false;
    }
  }
  return true;
}

}  // namespace

double TensorType::elements() const { return product(sizes); }

std::optional<TensorType> tensorType(const std::string& type) {
  auto [name, rest] = llvm::StringRef(type).split('[');
  TensorType result;
  result.element_size = llvm::StringSwitch<int64_t>(name)
                            .Cases("Bool", "Byte", "Char", 1)
                            .Cases("Short", "Half", "BFloat16", 2)
                            .Cases("Int", "Float", "ComplexHalf", 4)
                            .Cases("Long", "Double", "ComplexFloat", 8)
                            .Case("ComplexDouble", 16)
                            .Default(0);
  if (result.element_size == 0 || !rest.consume_back("]")) return std::nullopt;
  llvm::SmallVector<llvm::StringRef, 8> sizes;
  rest.split(sizes, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (const llvm::StringRef size : sizes) {
    int64_t number = 0;
    if (size.trim().getAsInteger(10, number) || number < 0) return std::nullopt;
    result.sizes.push_back(number);
  }
  return result;
}

Work forwardWork(const ir::Profile& profile, size_t index) {
  const ir::NodeProfile& node = profile.nodes[index];
  const std::vector<TensorType> inputs = tensorsAmong(profile, node.inputs);
  const std::vector<TensorType> outputs = tensorsAmong(profile, node.outputs);
  Work work;
  // A constructor of lists, an attribute, a view.
  if (llvm::StringRef(node.op).startswith("prim::") || isView(profile, node)) return work;
  for (const int32_t value : node.inputs) work.bytes += bytesOf(profile, profile.values[value]);
  for (const int32_t value : node.outputs) work.bytes += bytesOf(profile, profile.values[value]);
  const Formula formula = formulaOf(node.op);
  if (formula == Formula::kBytes || inputs.size() < 2 || outputs.empty()) return work;
  switch (formula) {
    case Formula::kConvolution:
    case Formula::kTransposed:
    case Formula::kAnyConvolution:
      work.flops = convolutionFlops(formula, inputs[0], inputs[1], outputs[0]);
      break;
    case Formula::kProduct:
      work.flops = productFlops(inputs[0], outputs[0]);
      break;
    case Formula::kAddedProduct:
      work.flops = productFlops(inputs[1], outputs[0]);
      break;
    case Formula::kAttention:
      if (inputs.size() > 2) work.flops = attentionFlops(inputs[0], inputs[1], inputs[2]);
      break;
    case Formula::kBytes:
      break;
  }
  return work;
}

double rooflineSeconds(const Work& work, const ir::Roofline& roofline) {
  return std::max(work.flops / roofline.flops, work.bytes / roofline.bytes);
}

std::string timesText(const ir::Profile& profile) {
  if (!profile.roofline.known()) return "times measured";
  constexpr double kTera = 1e12;
  return llvm::formatv("times by a roofline of {0:F1} TFLOP/s and {1:F2} TB/s",
                       profile.roofline.flops / kTera, profile.roofline.bytes / kTera)
      .str();
}

void applyRoofline(const ir::Roofline& roofline, ir::Profile& profile) {
  std::vector<int> parts(profile.nodes.size(), 0);
  for (const ir::BackwardStep& step : profile.backward) {
    if (step.node >= 0) ++parts[step.node];
  }
  profile.roofline = roofline;
  profile.step_seconds = 0;
  for (size_t node = 0; node < profile.nodes.size(); ++node) {
    profile.nodes[node].seconds = rooflineSeconds(forwardWork(profile, node), roofline);
    profile.step_seconds += profile.nodes[node].seconds;
  }
  for (ir::BackwardStep& step : profile.backward) {
    constexpr double kBackward = 2;  // of the forward's operations and bytes
    step.seconds =
        step.node < 0 ? 0 : kBackward * profile.nodes[step.node].seconds / parts[step.node];
    profile.step_seconds += step.seconds;
  }
}

}  // namespace remat
