#include "ir/attribute_identity.h"

#include <torch/csrc/jit/api/module.h>

#include <algorithm>

namespace remat::ir {

const void* attributeIdentity(const torch::jit::Module& module, const std::string& path) {
  c10::IValue value = module._ivalue();
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (!value.isObject() || !value.toObjectRef().type()->findAttribute(name)) return nullptr;
    value = value.toObjectRef().getAttr(name);
    begin = end + 1;
  }
  if (value.isObject()) return &value.toObjectRef();
  if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().has_storage()) {
    return nullptr;
  }
  return value.toTensor().storage().unsafeGetStorageImpl();
}

}  // namespace remat::ir
