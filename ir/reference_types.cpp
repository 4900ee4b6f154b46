#include "ir/reference_types.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace remat::ir {

bool mayHoldObjects(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::ClassType:
    case c10::TypeKind::InterfaceType:
    case c10::TypeKind::AnyType:
    case c10::TypeKind::AnyListType:
    case c10::TypeKind::AnyTupleType:
    case c10::TypeKind::FutureType:
    case c10::TypeKind::AwaitType:
    case c10::TypeKind::RRefType:
      return true;
    default:
      return std::any_of(type.containedTypes().begin(), type.containedTypes().end(),
                         [](const c10::TypePtr& inner) { return mayHoldObjects(*inner); });
  }
}

bool isReference(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::ListType:
    case c10::TypeKind::DictType:
      return true;
    default:
      return mayHoldObjects(type) ||
             std::any_of(type.containedTypes().begin(), type.containedTypes().end(),
                         [](const c10::TypePtr& inner) { return isReference(*inner); });
  }
}

bool isContainer(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType || type.kind() == c10::TypeKind::DictType ||
         type.kind() == c10::TypeKind::TupleType;
}

}  // namespace remat::ir
