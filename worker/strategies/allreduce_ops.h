// Collective ops of the ALLREDUCE strategy, on the comm lane. They use the comm::Communicator that the
// runtime's services provide.
//   braid.AllReduce(x...)             -> the same shapes: sums over ranks, as one bucket; rank_order (bool):
//   each is
//       the sum in the order of ranks, which a device does for two of them at most
//   braid.AllGatherRows(indices, values) -> [world * n], [world * n, row...]: every rank's rows, by rank;
//       index_rows, value_rows (lists of int): how many each rank has, where they have different numbers
//   braid.StopVote()                  -> 1 when this process was asked to stop, else 0
// Attribute `world` (int) is the number of ranks; `on_device` (bool) says that the communicator works on the
// memory of GPUs, so the ops run there too, on the device's comm stream. Order among collectives is fixed by
// control edges that the strategy adds.
#pragma once

#include "engine/ir/op.h"

namespace braid::worker {
inline constexpr const char* kOnDevice = "on_device";

/// For OpRegistry::add_cuda.
inline bool on_device(const Node& node, std::span<const OutputInfo>) {
  return node.attrs.get<bool>(kOnDevice, false);
}

inline constexpr const char* kRankOrder = "rank_order";
inline constexpr const char* kIndexRows = "index_rows";
inline constexpr const char* kValueRows = "value_rows";

void register_allreduce_ops(OpRegistry& registry);
/// Their kernels on the device. REQUIRES: register_allreduce_ops() was called.
void register_allreduce_device_kernels(OpRegistry& registry);
}  // namespace braid::worker
