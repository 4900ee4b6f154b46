#include "passes/value_tensors.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>

#include <sstream>

#include "llvm/ADT/SmallPtrSet.h"

namespace remat {
namespace {

class Collector {
 public:
  void collect(const c10::IValue& value) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) tensors.push_back(value.toTensor());
    } else if (value.isTuple()) {
      for (const c10::IValue& element : value.toTupleRef().elements()) collect(element);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) collect(element);
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict()) collect(entry.value());
    } else if (value.isObject()) {
      const c10::ivalue::Object& object = value.toObjectRef();
      if (!seen_.insert(&object).second) return;  // objects may refer to each other in a circle
      for (const c10::IValue& slot : object.slots()) collect(slot);
    }
  }

  std::vector<at::Tensor> tensors;

 private:
  llvm::SmallPtrSet<const c10::ivalue::Object*, 4> seen_;
};

/// `copy` with the types of `original`'s tuples: IValue::deepcopy makes a plain tuple of a
/// NamedTuple, which a method that asks for the NamedTuple refuses.
c10::IValue withTupleTypes(const c10::IValue& copy, const c10::IValue& original) {
  if (original.isTuple()) {
    const c10::TupleTypePtr type = original.toTupleRef().type();
    std::vector<c10::IValue> elements = copy.toTupleRef().elements().vec();
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i] = withTupleTypes(elements[i], original.toTupleRef().elements()[i]);
    }
    return type->schema() == nullptr ? c10::ivalue::Tuple::create(std::move(elements))
                                     : c10::ivalue::Tuple::createNamed(std::move(elements), type);
  }
  if (original.isList()) {
    c10::List<c10::IValue> list = copy.toList();
    for (size_t i = 0; i < list.size(); ++i) {
      list.set(i, withTupleTypes(list.get(i), original.toListRef()[i]));
    }
  } else if (original.isGenericDict()) {
    c10::Dict<c10::IValue, c10::IValue> dict = copy.toGenericDict();
    for (const auto& entry : original.toGenericDict()) {
      dict.insert_or_assign(entry.key(), withTupleTypes(dict.at(entry.key()), entry.value()));
    }
  }
  return copy;
}

}  // namespace

c10::IValue mapLeaves(const c10::IValue& value,
                      const std::function<c10::IValue(const c10::IValue&)>& change) {
  if (value.isTuple()) {
    const c10::TupleTypePtr type = value.toTupleRef().type();
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      elements.push_back(mapLeaves(element, change));
    }
    return type->schema() == nullptr ? c10::ivalue::Tuple::create(std::move(elements))
                                     : c10::ivalue::Tuple::createNamed(std::move(elements), type);
  }
  if (value.isList()) {
    const c10::List<c10::IValue> list = value.toList();
    c10::impl::GenericList made(list.elementType());
    for (size_t i = 0; i < list.size(); ++i) made.push_back(mapLeaves(list.get(i), change));
    return made;
  }
  if (value.isGenericDict()) {
    const c10::Dict<c10::IValue, c10::IValue> dict = value.toGenericDict();
    c10::impl::GenericDict made(dict.keyType(), dict.valueType());
    for (const auto& entry : dict) {
      made.insert(mapLeaves(entry.key(), change), mapLeaves(entry.value(), change));
    }
    return made;
  }
  return change(value);
}

std::vector<c10::IValue> withOwnContainers(const std::vector<c10::IValue>& values) {
  std::vector<c10::IValue> result;
  result.reserve(values.size());
  for (const c10::IValue& value : values) {
    result.push_back(mapLeaves(value, [](const c10::IValue& leaf) { return leaf; }));
  }
  return result;
}

std::vector<at::Tensor> tensorsOf(const c10::IValue& value) {
  Collector collector;
  collector.collect(value);
  return std::move(collector.tensors);
}

std::vector<c10::IValue> cloneValues(const std::vector<c10::IValue>& values) {
  const at::NoGradGuard no_grad;
  std::vector<c10::IValue> copies;
  copies.reserve(values.size());
  for (const c10::IValue& value : values) {
    copies.push_back(withTupleTypes(value.deepcopy(), value));
    const std::vector<at::Tensor> originals = tensorsOf(value);
    const std::vector<at::Tensor> clones = tensorsOf(copies.back());
    for (size_t i = 0; i < originals.size(); ++i) {
      if (originals[i].requires_grad()) clones[i].set_requires_grad(true);
    }
  }
  return copies;
}

std::string describeInputs(const std::vector<c10::IValue>& inputs) {
  std::ostringstream text;
  for (const c10::IValue& input : inputs) {
    text << (text.tellp() > 0 ? ", " : "");
    if (input.isTensor() && input.toTensor().defined()) {
      text << c10::toString(input.toTensor().scalar_type()) << input.toTensor().sizes()
           << (input.toTensor().requires_grad() ? ":grad" : "");
    } else if (input.isInt() || input.isDouble() || input.isBool() || input.isString()) {
      text << input;
    } else {
      text << input.tagKind();
    }
  }
  return text.str();
}

}  // namespace remat
