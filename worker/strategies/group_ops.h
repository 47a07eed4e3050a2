// What the workers of a part of a job exchange in a step (strategies TENSOR and EXPERTS). All workers of the
// job run such a node at one place of their one order, each for its own group, whose ranks attribute
// `members` has in order, so that who is late is found by the one communicator.
//
// braid.GroupAllReduce(x...): the sums over the group of float32 values; the same bits on all of it, each
//   element added up in the order of the ranks. On the host.
// braid.GroupReduceScatter(x) -> [rows / members, ...]: this rank's slice of that sum, along axis 0. On a GPU
//   only where the group is the whole job.
// braid.GroupAllToAll(x) -> x's shape: part m of x along axis 0 goes to member m; what comes from member m is
//   part m of the result.
// braid.GroupGather(x...) -> [members, ...] each: the values of the group's ranks, in their order.
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

inline constexpr const char* kMembers = "members";

void register_group_ops(OpRegistry& registry);
/// Kernels where the communicator takes the memory of GPUs.
void register_group_device_kernels(OpRegistry& registry);

}  // namespace braid::worker
