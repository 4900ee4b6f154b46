#include "tests/fuzz/attributes.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <functional>
#include <regex>

#include "tests/runtime/support.h"

namespace remat::fuzz {
namespace {

using Draw = std::function<at::Tensor(at::Generator&)>;

enum class Kind : uint8_t { kParameter, kFrozen, kBuffer };

struct Attribute {
  const char* name;
  Kind kind;
  Draw draw;
};

Draw normal(std::vector<int64_t> sizes, double scale, double mean = 0) {
  return [sizes = std::move(sizes), scale, mean](at::Generator& generator) {
    return at::empty(sizes).normal_(mean, scale, generator);
  };
}

Draw filled(std::vector<int64_t> sizes, double value) {
  return [sizes = std::move(sizes), value](at::Generator&) { return at::full(sizes, value); };
}

/// Rows in another order, one order for each column.
at::Tensor rowOrders(at::Generator& generator) {
  return at::rand({kRows, kColumns}, generator).argsort(0, false);
}

const std::vector<Attribute>& attributes() {
  static const std::vector<Attribute> all = {
      {"w0", Kind::kParameter, normal({kColumns, kColumns}, 0.25)},
      {"w1", Kind::kParameter, normal({kColumns, kColumns}, 0.25)},
      {"frozen", Kind::kFrozen, normal({kColumns, kColumns}, 0.25)},
      {"bias", Kind::kParameter, normal({kColumns}, 0.1)},
      {"gain", Kind::kParameter, normal({kColumns}, 0.1, 1)},
      {"kernel", Kind::kParameter, normal({4, 4, 3}, 0.3)},
      {"kernel2", Kind::kParameter, normal({2, 2, 3, 3}, 0.25)},
      {"slope", Kind::kParameter, filled({1}, 0.2)},
      {"table", Kind::kParameter, normal({kRows, kColumns}, 0.5)},
      {"rnn", Kind::kParameter, normal({kColumns, kColumns}, 0.2)},
      {"mean", Kind::kBuffer, filled({kColumns}, 0)},
      {"variance", Kind::kBuffer, filled({kColumns}, 1)},
      {"scale", Kind::kBuffer, normal({kColumns}, 0.1, 1)},
      {"last", Kind::kBuffer, filled({kColumns}, 0)},
      {"count", Kind::kBuffer, [](at::Generator&) { return at::zeros({}, at::kLong); }},
      {"mask", Kind::kBuffer,
       [](at::Generator& generator) { return at::rand({kColumns}, generator) > 0.5; }},
      {"order", Kind::kBuffer,
       [](at::Generator& generator) { return at::randperm(kRows, generator); }},
      {"orders", Kind::kBuffer, rowOrders},
  };
  return all;
}

bool mentions(const std::string& text, const std::string& name) {
  return std::regex_search(text, std::regex("(self\\.|name=\")" + name + "\\b"));
}

}  // namespace

std::vector<std::string> attributeNames() {
  std::vector<std::string> names;
  for (const Attribute& attribute : attributes()) names.emplace_back(attribute.name);
  return names;
}

torch::jit::Module moduleFor(const std::string& text, uint64_t seed) {
  torch::jit::Module module("Sample");
  module.register_attribute("training", c10::BoolType::get(), true);
  uint64_t number = 0;
  for (const Attribute& attribute : attributes()) {
    ++number;
    if (!mentions(text, attribute.name)) continue;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed * 100 + number);
    const at::Tensor tensor = attribute.draw(generator);
    if (attribute.kind == Kind::kBuffer) {
      module.register_buffer(attribute.name, tensor);
    } else {
      module.register_parameter(
          attribute.name, tensor.set_requires_grad(attribute.kind == Kind::kParameter), false);
    }
  }
  if (mentions(text, "no_grad")) runtime::test::addNoGrad(module);
  return module;
}

}  // namespace remat::fuzz
