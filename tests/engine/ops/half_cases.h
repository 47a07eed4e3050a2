// Cases of float16 and bfloat16 for the ops that take them (engine/ops/common/halves.h), made from the ops'
// own cases.
#pragma once

#include <optional>
#include <vector>

#include "engine/ops/common/halves.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

/// Ops with a form.
std::vector<const OpDef*> half_ops_of_registry();

struct HalfCase {
  OpCase halves;             // what the op's form says is of the half type
  OpCase floats;             // the same values as float32
  std::vector<int> rounded;  // outputs that are halves
};
/// Of an op's case of floats; nothing for others. `narrow`: outputs that may be halves or not are such.
std::optional<HalfCase> half_case(const OpDef& def, const OpCase& op_case, DType half, bool narrow);

/// By Cast.
Tensor cast(const Tensor& tensor, DType to);

}  // namespace braid::testing
