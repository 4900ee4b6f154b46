#pragma once

#include <string>
#include <vector>

namespace remat::fuzz {

/// What random programs are made of. `{a}`, `{b}` and `{v}` stand for values of [kRows, kColumns].

/// Expressions of one value, and of two, of that size again.
const std::vector<std::string>& unaryExpressions();
const std::vector<std::string>& binaryExpressions();
/// Expressions that make `{v}`, of its own bytes, from `{a}`: it will be written in place.
const std::vector<std::string>& freshExpressions();
/// Statements that write `{v}` in place; `{b}` is another value.
const std::vector<std::string>& writes();
/// Expressions that alias `{v}` and are [kRows, kColumns] themselves, or not.
const std::vector<std::string>& views();
/// Statements that write what outlives the call.
const std::vector<std::string>& stateWrites();
/// Conditions on `{a}` and `{b}`.
const std::vector<std::string>& conditions();
/// Expressions of a list `{l}` of values.
const std::vector<std::string>& listExpressions();

}  // namespace remat::fuzz
