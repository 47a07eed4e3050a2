// Batching of siblings: independent nodes of one kind and shape (the layers of towers, experts and heads,
// their backward nodes, and the updates of their variables) become one node over operands with a leading
// axis, the lanes. Runs on the graph, once shapes are known, before placement and before streams.
//
//   MatMul, BatchMatMul -> BatchMatMulV2     BiasAdd -> AddV2     BiasAddGrad -> Sum     reshapes -> Reshape
//   elementwise ops and their gradients, AddN, Softmax, Sum, Mean, ApplyOptimizer: the same op
//
// An operand of a batched node is the result of another one with the same lanes; or one value that all lanes
// share, which is broadcast; or variables, which then lie one after another in memory (a slab; the store
// knows each by its name as before), if every use of each of them is batched in the same lanes; or else a
// Pack of the lanes' values. Where a lane's result is used by itself there is an Unpack. A group is made only
// if the modelled time of its lanes exceeds that of the batched node with its packing and unpacking, on the
// host by a fifth.
//
// Nodes that the user has put on different streams, by scopes or rules, stay apart unless
// BatchSiblings::AcrossScopes, also where there is one stream: what is batched does not depend on their
// number. No rule of rule.h: the groups are chosen for the whole graph at once. A sum may be made in another
// order than in the lanes, so results equal those of the graph as written to rounding. Thread rule: one
// thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// Attribute of the VarHandleOp of a slab: the names of the variables in it.
inline constexpr const char* kSlabMembers = "_slab_members";

/// Attribute of a batched node: the names of its lanes as the graph has them. Stream rules, reports and the
/// trace find them by it.
inline constexpr const char* kLanes = "_lanes";
/// "a, b" for a batched node, else nothing.
std::string lanes_text(const Node& node);

/// Off, unless the options say otherwise. Adds a note that says what was done.
void fuse_horizontally(Plan& plan);

/// The parts of it that come last. Lanes that only come apart to be joined are moved in one piece
/// (pack_cancellation.cc); sums of outer products of lanes take the batches (fuse_outer_products.cc).
void cancel_packs(Plan& plan);
void join_outer_products(Plan& plan);
/// Whether join_outer_products will give `user` the batch whose lane `lane` of `lanes` is its input now.
bool takes_lane(const Node& user, std::size_t input, std::size_t lane, std::size_t lanes);

}  // namespace braid
