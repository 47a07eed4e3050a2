// What loops keep in tensor lists becomes the tensors themselves. Thread rule: pure, but for what it is
// given.
#pragma once

#include "proto/graph.pb.h"

namespace braid {

/// TensorListFromTensor, Reserve, GetItem, SetItem, Stack, Length and Identities of lists become nodes of
/// tensors, where the places that are read and written are known. What stays is for the importer to refuse.
/// REQUIRES: functions are inlined.
void lower_tensor_lists(GraphDef& graph);

}  // namespace braid
