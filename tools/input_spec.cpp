#include "tools/input_spec.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSwitch.h"

namespace remat::tools {
namespace {

constexpr const char* kDtypes =
    "float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8, bool, complex64 or "
    "complex128";

/// Parses one spec; positions in messages count from 1.
class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) { spec_.text = text; }

  InputSpec parse() {
    if (parseValue()) return spec_;
    llvm::SmallVector<llvm::StringRef, 4> parts;
    text_.split(parts, ':');
    parseShape(parts.front());
    bool has_dtype = false;
    for (const llvm::StringRef part : llvm::makeArrayRef(parts).drop_front()) {
      if (part == "grad") {
        spec_.requires_grad = true;
      } else if (spec_.requires_grad) {
        fail(part, "nothing may follow ':grad'");
      } else if (!has_dtype) {
        spec_.dtype = parseDtype(part);
        has_dtype = true;
      } else if (!spec_.has_range) {
        parseRange(part);
      } else {
        fail(part, "only ':grad' may follow the range");
      }
    }
    check();
    return spec_;
  }

 private:
  [[noreturn]] void fail(llvm::StringRef where, const std::string& what) const {
    const auto position = static_cast<size_t>(where.data() - text_.data()) + 1;
    throw std::invalid_argument("'" + text_.str() + "', position " + std::to_string(position) +
                                ": " + what);
  }

  /// `int=3` and the like; false: a tensor.
  bool parseValue() {
    if (text_ == "none") {
      spec_.is_tensor = false;
      return true;
    }
    if (!text_.contains('=')) return false;
    spec_.is_tensor = false;
    const auto [kind, value] = text_.split('=');
    if (kind == "int") {
      int64_t number = 0;
      if (value.getAsInteger(10, number)) fail(value, "expected a whole number");
      spec_.value = number;
    } else if (kind == "float") {
      double number = 0;
      if (value.getAsDouble(number)) fail(value, "expected a number");
      spec_.value = number;
    } else if (kind == "bool") {
      if (value != "true" && value != "false") fail(value, "expected true or false");
      spec_.value = value == "true";
    } else if (kind == "str") {
      spec_.value = value.str();
    } else {
      fail(kind, "expected int=, float=, bool=, str= or a shape such as 16x3x224x224");
    }
    return true;
  }

  void parseShape(llvm::StringRef shape) {
    if (shape == "scalar") return;
    if (shape.empty()) fail(shape, "expected a shape such as 16x3x224x224");
    llvm::SmallVector<llvm::StringRef, 8> sizes;
    shape.split(sizes, 'x');
    int64_t elements = 1;
    for (const llvm::StringRef size : sizes) {
      int64_t value = 0;
      if (size.getAsInteger(10, value)) {
        fail(size, "expected a size, as in 16x3x224x224" +
                       (sizes.size() == 1 ? std::string(", or float=0.5, bool=true") : "") +
                       (size.empty() ? std::string() : ", got '" + size.str() + "'"));
      }
      if (value < 1) fail(size, "sizes are at least 1");
      constexpr int64_t kMostElements = std::numeric_limits<int64_t>::max() / 16;
      if (value > kMostElements / elements) fail(size, "the tensor has too many elements");
      elements *= value;
      spec_.sizes.push_back(value);
    }
  }

  at::ScalarType parseDtype(llvm::StringRef name) const {
    const auto type = llvm::StringSwitch<at::ScalarType>(name)
                          .Cases("float32", "float", at::kFloat)
                          .Cases("float64", "double", at::kDouble)
                          .Cases("float16", "half", at::kHalf)
                          .Case("bfloat16", at::kBFloat16)
                          .Case("int8", at::kChar)
                          .Case("uint8", at::kByte)
                          .Case("int16", at::kShort)
                          .Cases("int32", "int", at::kInt)
                          .Cases("int64", "long", at::kLong)
                          .Case("bool", at::kBool)
                          .Case("complex64", at::kComplexFloat)
                          .Case("complex128", at::kComplexDouble)
                          .Default(at::ScalarType::Undefined);
    if (type == at::ScalarType::Undefined) {
      fail(name, "'" + name.str() + "' is no dtype; use " + kDtypes);
    }
    return type;
  }

  void parseRange(llvm::StringRef range) {
    const auto [low, high] = range.split("..");
    if (!range.contains("..")) fail(range, "expected a range such as 0..8191, or grad");
    spec_.low = parseBound(low);
    spec_.high = parseBound(high);
    if (spec_.low > spec_.high) fail(range, "the range's low end is above its high end");
    spec_.has_range = true;
  }

  double parseBound(llvm::StringRef text) const {
    double value = 0;
    if (text.getAsDouble(value) || !std::isfinite(value)) fail(text, "expected a number");
    if (at::isIntegralType(spec_.dtype, /*includeBool=*/true)) {
      int64_t integer = 0;
      if (text.getAsInteger(10, integer)) fail(text, "expected a whole number");
      const auto [lowest, highest] = limits();
      if (integer < lowest || integer > highest) {
        fail(text, "does not fit " + std::string(c10::toString(spec_.dtype)));
      }
    }
    return value;
  }

  /// What values drawn for an integer dtype may be: doubles hold integers up to 2^53 exactly.
  std::pair<int64_t, int64_t> limits() const {
    constexpr int64_t kExact = int64_t{1} << 53;
    switch (spec_.dtype) {
      case at::kBool:
        return {0, 1};
      case at::kByte:
        return {0, 255};
      case at::kChar:
        return {-128, 127};
      case at::kShort:
        return {-32768, 32767};
      case at::kInt:
        return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
      default:
        return {-kExact, kExact};
    }
  }

  void check() const {
    const bool differentiable = at::isFloatingType(spec_.dtype) || at::isComplexType(spec_.dtype);
    if (spec_.requires_grad && !differentiable) {
      fail(text_.take_back(4), "only floating-point inputs can require grad");
    }
    if (spec_.has_range && at::isComplexType(spec_.dtype)) {
      fail(text_, "complex inputs take no range");
    }
  }

  llvm::StringRef text_;
  InputSpec spec_;
};

at::Tensor makeTensor(const InputSpec& spec, at::Generator& generator) {
  const auto options = at::TensorOptions().dtype(spec.dtype);
  if (at::isIntegralType(spec.dtype, /*includeBool=*/true)) {
    const auto low = static_cast<int64_t>(spec.has_range ? spec.low : 0);
    const auto high = static_cast<int64_t>(spec.has_range ? spec.high : 1);
    return at::randint(low, high + 1, spec.sizes, generator, at::TensorOptions().dtype(at::kLong))
        .to(spec.dtype);
  }
  at::Tensor tensor = at::empty(spec.sizes, options);
  return spec.has_range ? tensor.uniform_(spec.low, spec.high, generator)
                        : tensor.normal_(0, 1, generator);
}

}  // namespace

InputSpec parseInputSpec(const std::string& text) { return Parser(text).parse(); }

std::vector<c10::IValue> makeInputs(const std::vector<InputSpec>& specs, uint64_t seed,
                                    c10::Device device) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<c10::IValue> inputs;
  inputs.reserve(specs.size());
  for (const InputSpec& spec : specs) {
    if (!spec.is_tensor) {
      inputs.push_back(spec.value);
      continue;
    }
    at::Tensor tensor = makeTensor(spec, generator).to(device);
    inputs.emplace_back(tensor.set_requires_grad(spec.requires_grad));
  }
  return inputs;
}

}  // namespace remat::tools
