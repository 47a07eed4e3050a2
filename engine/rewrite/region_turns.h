// Transpositions that regions read through: a region reads the elements where they lie before the node, in
// the order of what is behind it, so no copy is made. Thread rule: one thread.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/fusion/region.h"
#include "engine/program/plan.h"
#include "engine/rewrite/region_parts.h"
#include "engine/rewrite/region_program.h"
#include "engine/rewrite/rewrite.h"

namespace braid {

/// A value whose axis a, of sizes[a] elements, is an axis of another value with that stride.
struct TurnOf {
  ValueRef whole;
  std::vector<std::int64_t> sizes, strides;
};

/// Nothing where the node is no transposition, or where threads beside each other would read elements so far
/// apart that what a block loads is not used by itself.
std::optional<TurnOf> turn_of(const Plan& plan, NodeId id);

/// Has `steps` read through the transpositions that regions alone may read, behind views, parts and other
/// transpositions, too. Of others some are nodes of regions, copies that read what they turn where it lies:
/// what is a part, and where a region or a join reads them. `may_join`: whether a node may be in a region.
void find_turns(const Plan& plan, const Users& users, NodeStepsCache& steps,
                const std::function<bool(const Node&)>& may_join);

/// How axes over the elements behind, from one of them on, go through those before; nothing where they
/// cannot.
std::optional<Through> axes_through(const TurnOf& turn, const Through& places);

}  // namespace braid
