// Ops of the HYBRID strategy, beside those of allreduce_ops.h and engine/ops/sparse/bucket_ids.cc,
// bucket_rows.cc. They use the comm::Communicator that the runtime's services provide.
//   braid.AllToAll(x..., [sent..., received...]) -> the same types and shapes: block r of each x [ranks, C,
//   ...]
//     goes to rank r, in one exchange for all; block r of an output came from rank r. On the comm lane.
//     Attributes: parts (int), how many x there are; world; on_device.
//     One part: lists of rows (braid.BucketIds), padded with -1.
//     With sent and received, lists of rows [ranks, C]: of x, only as many rows of a block are of use as the
//     block of `sent` has numbers that are not negative, and of the output as that of `received` has. A host
//     sends no more, and leaves what is behind them in the output as it is, unless the attribute `fill` asks
//     for zeros, or bytes `fill_byte`. A device always sends all of C: a captured graph cannot know.
//   braid.ServedRows(ids) -> [ids..., dim]: rows of a sharded table for an evaluation on the leader, while
//   the
//     other ranks serve it (worker/strategies/table_service.h). Attributes: table (int), dim.
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {
/// Of braid.AllToAll, for tests: 255 makes NaN of what nobody sent.
inline constexpr const char* kFillByte = "fill_byte";

void register_hybrid_ops(OpRegistry& registry);
/// Their kernels on the device. REQUIRES: register_hybrid_ops() was called.
void register_hybrid_device_kernels(OpRegistry& registry);
}  // namespace braid::worker
