// Variables that TensorFlow 1 has cut by a partitioner: the graph has "table/part_0", "table/part_1", ...,
// and a checkpoint of its saver has "table". Thread rule: pure functions.
#pragma once

#include <map>
#include <string>

#include "engine/ir/tensor.h"
#include "worker/model/def_graph.h"

namespace braid::worker {

/// Puts the parts that the graph has into `stored`, cut out of the whole values there. Parts are cut along
/// one axis, in their order, and make up the whole; others are left out.
void add_parts(const GraphDef& graph, std::map<std::string, Tensor>& stored);

}  // namespace braid::worker
