// Which nodes a fused region takes in: the decision behind fuse_regions.cc.
//
// Nodes are visited in topological order. Each starts as a region of its own and is put together with the
// regions that make its inputs, where that is possible:
//   * nodes of both have one stream (written, ruled or inherited), device and colocation, and the device's
//   kernels;
//   * their places fit one grid: all have the grid's elements, or an element for each of its rows;
//   * what passes between them passes place by place, or from a row to its places;
//   * no way leads out of the region and back into it;
//   * nothing in it comes after a write of a variable, as its reads might then have to come before;
//   * it stays below limits of nodes, inputs and outputs.
// Regions whose outputs one node joins are put together too, and write the joined tensor, with what they do
// not make of it. Views between two nodes are looked through: a region works on elements in their order.
// Thread rule: one thread.
#pragma once

#include <vector>

#include "engine/fusion/region.h"
#include "engine/program/plan.h"

namespace braid {

struct FusedRegion {
  fusion::Region program;
  std::vector<NodeId> nodes;     // in topological order, without what it repeats of other regions
  std::vector<ValueRef> inputs;  // of the program, in its order
  std::vector<std::vector<ValueRef>> outputs;  // values that each tensor of the program's outputs stands for
  std::vector<NodeId> joins = {};              // whose outputs it writes part by part (region_parts.h)
  bool reads_parts = false;                    // of wider tensors, where they are
  bool repeats = false;                        // nodes of other regions
  double saved_us = 0;                         // by the cost model
};

/// Regions of two nodes and more, or of one that reads or writes parts of tensors or picks rows, in the order
/// of their last nodes. `cuts`: regions repeat what others have where that is cheaper (region_cuts.h), so all
/// of them must replace their nodes, or none.
std::vector<FusedRegion> find_fused_regions(const Plan& plan, bool cuts);

}  // namespace braid
