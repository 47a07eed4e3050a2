// Parts of tensors that regions read and write where they are: columns that a Split, Slice, SplitLike or
// Unpack takes out, which a region reads in the wider tensor, and columns that a Concat or Pack joins, which
// a region that makes some of them writes into the wider tensor, and copies the others. Thread rule: one
// thread.
#pragma once

#include <optional>
#include <vector>

#include "engine/rewrite/region_program.h"

namespace braid {

/// Axes over the elements of a value, from element `offset` on.
struct Through {
  fusion::Axes axes;
  std::int64_t offset = 0;
};

/// A value whose rows of `columns` elements are parts, from `offset` on, of the rows of `width` of another.
struct PartOf {
  ValueRef whole;
  std::int64_t columns = 0, width = 0, offset = 0;
};
/// Nothing where the value is no part, or is fed.
std::optional<PartOf> part_of(const Plan& plan, ValueRef value);
/// How axes over the part's elements, from one of them on, go through the whole's; nothing where they cannot.
std::optional<Through> axes_through(const PartOf& part, const Through& places);

/// A node whose output has rows of `width`, made of parts of `columns` each.
struct Join {
  NodeId node = kNoNode;
  std::int64_t columns = 0, width = 0;
  std::vector<ValueRef> parts;  // behind views
  std::vector<std::int64_t> offsets;
  NodeId writer = kNoNode;  // a node of the region that writes it
};
/// Nothing where the node joins no parts of one width, or is no inner node.
std::optional<Join> join_of(const Plan& plan, const NodeStepsCache& steps, const Node& node);

/// The region of a join's writer writes all parts there, and the join belongs to it (FusedRegion::joins).
void absorb_joins(const Plan& plan, const Users& users, NodeStepsCache& steps, const std::vector<Join>& joins,
                  std::vector<FusedRegion>& regions);

}  // namespace braid
