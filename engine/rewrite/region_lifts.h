// Small nodes that a region computes for each of its places: what is done to a value for each channel, such
// as batch norm's gradients of means, before it is repeated over all rows, is no kernel of its own. Thread
// rule: one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/rewrite/region_program.h"

namespace braid {

/// By node, how the places of a region's grid meet its elements.
using Lifts = std::map<NodeId, fusion::Axes>;

/// From places by `outer` to elements, and from these by `inner` to others; nothing where no axes do that.
std::optional<fusion::Axes> composed(const fusion::Axes& outer, const fusion::Axes& inner);

/// Whether a grid of so many places may have the node computed at each: it has few elements, and what it does
/// to one is little beside a launch.
bool may_be_lifted(const fusion::NodeSteps& steps, std::int64_t places);

/// How all of `small`, nodes of a region, are met; nothing where two of their readers in the region meet one
/// differently, one has none there, or all that is done at each place is much. `nodes`: of the region, in
/// topological order.
std::optional<Lifts> find_lifts(const Plan& plan, NodeStepsCache& steps, const std::vector<NodeId>& nodes,
                                const std::set<NodeId>& small, std::int64_t places);

}  // namespace braid
