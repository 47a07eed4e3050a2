// What loops keep in tensor lists becomes the tensors themselves. Thread rule: pure, but for what it is
// given.
#pragma once

#include "proto/graph.pb.h"

namespace braid {

/// Lists that are made of tensors, reserved or empty, what reads and writes their elements, pushes and pops
/// them, stacks and counts them, and Identities and sums of lists become nodes of tensors, where places and
/// sizes are known. What stays is for the importer to refuse.
/// REQUIRES: functions are inlined.
void lower_tensor_lists(GraphDef& graph);

}  // namespace braid
