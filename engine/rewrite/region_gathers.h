// Rows that regions pick out of other tensors themselves: a gather that only regions read is no node.
// Thread rule: one thread.
#pragma once

#include <vector>

#include "engine/rewrite/region_program.h"

namespace braid {

/// Inputs of regions that are gathers of whole rows along the first axis become the tensor and the indices,
/// where every reader of the gather is such a region. What nobody reads any more is left for prune.
void absorb_gathers(const Plan& plan, const Users& users, const NodeStepsCache& steps,
                    std::vector<FusedRegion>& regions);

}  // namespace braid
