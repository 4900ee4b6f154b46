#pragma once

#include <ATen/core/jit_type_base.h>

#include "ir/region_order.h"

namespace remat::ir {

/// Whether a node draws random numbers, seen from its schema and constant arguments. Stricter
/// knowledge than Node::isNondeterministic: attention and recurrent nets whose dropout is the
/// constant 0 draw nothing; remat::dropout_mask does.
bool isRandom(const torch::jit::Node& node);

/// Node::hasSideEffects, but for remat::dropout_mask, whose draw the runtime repeats without moving
/// anybody's generator.
bool hasSideEffects(const torch::jit::Node& node);

/// Whether running `node` a second time is right as far as its form and schema can tell: one
/// operator call or list/tuple construction, outputs, no write, no side effect, no randomness that
/// the runtime cannot redraw (it redraws remat::dropout_mask), arguments that a frame can hold.
/// What a schema cannot tell (unknown ops, hidden writes) is the business of passes/legality.
bool isReplayableByForm(const OrderedNode& node);

/// Whether a value of this type holds tensors: a tensor, or a list or tuple or optional of such.
bool holdsTensors(const c10::Type& type);

}  // namespace remat::ir
