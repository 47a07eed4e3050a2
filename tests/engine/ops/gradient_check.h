// Numeric gradient of one case against the op's gradient rule: loss = sum over outputs of <dy, y> with a
// fixed random dy, so one pass of the rule is compared with central differences of the loss by every input
// element.
#pragma once

#include <string>

#include "engine/ir/op.h"
#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

/// Empty when they agree, else what does not.
std::string check_gradient(const OpDef& def, const OpCase& op_case);

}  // namespace braid::testing
