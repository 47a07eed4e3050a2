// An elementwise op's formula (engine/ir/formula.h) as an expression of CUDA C++, over the functions that
// cuda_prelude.h declares. Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "engine/fusion/region.h"
#include "engine/ir/op_traits.h"

namespace braid::fusion {

/// The type in generated code, or empty where regions do not have it.
std::string_view cuda_type(DType dtype);

/// A constant, whose bits are those of an element.
std::string cuda_constant(std::uint64_t bits, DType dtype);

/// Whether the formula, on operands of these types, means what the op's kernels compute. Integers are only
/// added, subtracted, multiplied, compared and chosen: kernels refuse some divisors, which a formula does not
/// say.
bool is_expressible(const Formula& formula, const std::vector<DType>& operands);

/// REQUIRES: is_expressible; `names` has the operands' names in the generated code.
std::string cuda_expression(const Formula& formula, const std::vector<DType>& operands,
                            const std::vector<std::string>& names, const Parameters& parameters);

}  // namespace braid::fusion
