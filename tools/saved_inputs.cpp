#include "tools/saved_inputs.h"

#include <torch/csrc/api/include/torch/serialize.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <iterator>

#include "passes/value_tensors.h"
#include "tools/archive.h"
#include "tools/errors.h"

namespace remat::tools {
namespace {

c10::IValue unpickle(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(stream)),
                                std::istreambuf_iterator<char>());
  return torch::jit::pickle_load(bytes);
}

std::vector<c10::IValue> argumentsOf(const c10::IValue& value, const std::string& path) {
  if (value.isTuple()) return value.toTupleRef().elements().vec();
  if (value.isList()) return value.toListRef().vec();
  if (value.isTensor()) return {value};
  throw refused(path + ": holds a " + value.tagKind() +
                "; save a tuple of the model's arguments: torch.save((x, y), FILE)");
}

std::vector<c10::IValue> onDevice(const std::vector<c10::IValue>& values, c10::Device device) {
  std::vector<c10::IValue> moved;
  moved.reserve(values.size());
  for (const c10::IValue& value : values) {
    const at::NoGradGuard no_grad;
    moved.push_back(value.deepcopy(device));
    const std::vector<at::Tensor> before = tensorsOf(value);
    const std::vector<at::Tensor> after = tensorsOf(moved.back());
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].requires_grad()) after[i].set_requires_grad(true);
    }
  }
  return moved;
}

}  // namespace

std::vector<c10::IValue> loadInputs(const std::string& path, c10::Device device) {
  const Archive archive = readArchive(path);
  if (archive.kind == ArchiveKind::kLegacyPickle) {
    throw refused(path +
                  ": is in torch.save's old format; save it again without "
                  "_use_new_zipfile_serialization=False");
  }
  try {
    if (archive.kind == ArchiveKind::kTorchScript) {  // C++'s torch::save
      std::vector<at::Tensor> tensors;
      torch::load(tensors, path);
      std::vector<c10::IValue> inputs(tensors.begin(), tensors.end());
      for (const c10::IValue& input : inputs) checkTensors(input);
      if (inputs.empty()) throw refused(path + ": holds a model, no tensors; see --inputs");
      return onDevice(inputs, device);
    }
    const c10::IValue value = unpickle(path);
    checkTensors(value);
    return onDevice(argumentsOf(value, path), device);
  } catch (const ToolError&) {
    throw;
  } catch (const std::exception& error) {
    throw refused(path + ": can't be read: " + oneLine(error) +
                  "; save a tuple of tensors and plain numbers with torch.save");
  }
}

c10::IValue typedAs(const c10::IValue& value, const c10::TypePtr& type) {
  if (const auto* optional = type->castRaw<c10::OptionalType>()) {
    return value.isNone() ? value : typedAs(value, optional->getElementType());
  }
  if (const auto* list = type->castRaw<c10::ListType>(); list != nullptr && value.isList()) {
    c10::impl::GenericList typed(list->getElementType());
    for (const c10::IValue& element : value.toListRef()) {
      typed.push_back(typedAs(element, list->getElementType()));
    }
    return typed;
  }
  if (const auto* dict = type->castRaw<c10::DictType>(); dict != nullptr && value.isGenericDict()) {
    c10::impl::GenericDict typed(dict->getKeyType(), dict->getValueType());
    for (const auto& entry : value.toGenericDict()) {
      typed.insert(entry.key(), typedAs(entry.value(), dict->getValueType()));
    }
    return typed;
  }
  const auto tuple = type->cast<c10::TupleType>();
  if (tuple == nullptr || !value.isTuple() ||
      value.toTupleRef().size() != tuple->elements().size()) {
    return value;
  }
  std::vector<c10::IValue> elements;
  for (size_t i = 0; i < tuple->elements().size(); ++i) {
    elements.push_back(typedAs(value.toTupleRef().elements()[i], tuple->elements()[i]));
  }
  return tuple->schema() == nullptr ? c10::ivalue::Tuple::create(std::move(elements))
                                    : c10::ivalue::Tuple::createNamed(std::move(elements), tuple);
}

}  // namespace remat::tools
