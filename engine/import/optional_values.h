// Optional values, in which branches of a conditional hand over what its gradient needs: of a branch that is
// not taken there is none. As all branches are computed, whoever asks for a value gets that of the branch
// that has one. Thread rule: pure.
#pragma once

#include "proto/graph.pb.h"

namespace braid {

/// Replaces OptionalGetValue by the values, and takes the optionals away. Those whose branch is not known
/// stay, and are refused by name.
void lower_optionals(GraphDef& graph);

}  // namespace braid
