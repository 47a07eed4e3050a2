// Where regions are cut. A value that one region writes for another is often cheap to compute again from what
// the other reads anyway, or from something smaller: the float32 of a half, twice a difference from the mean,
// one minus a gate. Such nodes are repeated where they are used. That is also how gradients come to read what
// the forward pass read or wrote, instead of intermediate values that it would have to keep for them.
//
// Of each value that a region reads, the nodes behind it are repeated one layer after the other, as long as
// they are elementwise; the number of layers with the lowest cost of all regions that it touches is kept, if
// that is below the cost without. Costs are bytes read and written, operations and launches, by the cost
// model. Thread rule: one thread.
#pragma once

#include <vector>

#include "engine/rewrite/region_program.h"
#include "engine/rewrite/rewrite.h"

namespace braid {

struct NodeOrder {
  const std::vector<int>& position;  // by node, in topological order
  const std::vector<int>& stream;  // by node: written, ruled or inherited. Nothing is repeated on another one
};

/// REQUIRES: each node is in at most one of the regions.
/// Result: regions of two nodes and more, repeated ones counted. A region whose nodes nobody needs any more,
/// or that has one left, is none.
std::vector<FusedRegion> cut_regions(const Plan& plan, const Users& users, NodeStepsCache& steps,
                                     const NodeOrder& order, std::vector<std::vector<NodeId>> regions);

}  // namespace braid
