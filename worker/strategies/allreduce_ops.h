// Collective ops of the ALLREDUCE strategy, on the comm lane. They use the comm::Communicator that the
// runtime's services provide.
//   braid.AllReduce(x...)             -> the same shapes: sums over ranks, as one bucket
//   braid.AllGatherRows(indices, values) -> [world * n], [world * n, row...]: every rank's rows, by rank
//   braid.StopVote()                  -> 1 when this process was asked to stop, else 0
// Attribute `world` (int) is the number of ranks. Order among collectives is fixed by control edges that the
// strategy adds.
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {
void register_allreduce_ops(OpRegistry& registry);
}
