// Ops of the HYBRID strategy for tables that live whole on one rank, their owner. They use the
// comm::Communicator that the runtime's services provide, on the comm lane, and send what the batch has, in
// its order: equal ids travel as often as they are there, and no list has to be made. Every rank has as many
// rows.
//   braid.ToOwners(x...) -> y...: y [ranks * n, ...] of the owner of x [n, ...] has the x of all ranks, in
//   their
//     order; elsewhere y is [0, ...].
//   braid.FromOwners(y..., like...) -> x...: back again. x has the dimensions of `like` (ids; only their
//   shape
//     counts), then those of a row of y that come behind them.
// Attributes: owners (a rank for each x), rank, world, on_device; of FromOwners like_axes (for each x how
// many of the dimensions of `like` it has, -1: all; sums of bags have the first one of their ids), and
// like_dims: in place of the inputs `like`, for each the number of its dimensions and these.
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

inline constexpr const char* kOwners = "owners";
inline constexpr const char* kLikeAxes = "like_axes";
inline constexpr const char* kLikeDims = "like_dims";

void register_owner_ops(OpRegistry& registry);

}  // namespace braid::worker
