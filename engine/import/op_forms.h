// Forms of ops that mean what another op of the engine means: other names, settings given as constant
// inputs instead of attributes, sums that an Einsum's product needs before, and what a few ops make. Thread
// rule: one thread.
#pragma once

#include "engine/import/pending_graph.h"

namespace braid {

/// Rewrites them all. What has no other form stays, and is refused later.
void rename_forms(PendingGraph& graph);

}  // namespace braid
