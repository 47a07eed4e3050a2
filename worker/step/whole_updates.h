// Updates by optimizers that do not go element by element (base/optim.h): each has an op and states of its
// own. Thread rule: one thread.
#pragma once

#include "worker/step/training_graph.h"

namespace braid::worker {

/// The optimizer of a variable that has ADAM_8BIT: ADAM, for what is updated by rows, whose blocks would be
/// rounded for rows that no batch names, and for what has less than 4096 elements, where it saves nothing;
/// else itself. Others stay as they are.
OptimizerSpec with_small_states(const OptimizerSpec& spec, std::int64_t elements, bool by_rows);

/// Adds the update and its states, "<variable>/<state>". REQUIRES: !is_elementwise(spec). Throws:
/// InvalidArgument for a gradient by rows.
void add_whole_update(TrainingGraph& training, const VariableGradient& gradient, const OptimizerSpec& spec);

}  // namespace braid::worker
