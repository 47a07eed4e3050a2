// An OptimizerSpec as attributes of an update node (braid.ApplyOptimizer, braid.SparseApplyOptimizer) and
// back: kind (the name, "ADAM"), momentum, nesterov, beta1, beta2, epsilon, initial_accumulator,
// weight_decay. Thread rule: pure functions.
#pragma once

#include "base/optim.h"
#include "engine/ir/attr.h"

namespace braid {

AttrMap optimizer_attrs(const OptimizerSpec& spec);

/// The inverse; attributes that are absent have OptimizerSpec's defaults, kind must be there.
/// Throws: InvalidArgument for an unknown kind.
OptimizerSpec optimizer_spec(const AttrMap& attrs);

}  // namespace braid
