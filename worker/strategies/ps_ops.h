// Pulls and pushes of the PS strategy as asynchronous ops on the pull and push lanes. They use the
// ps::PsClient that the runtime's services provide.
//   braid.PsPull(handles..., ids...) -> rows..., [votes]
//       writes dense variables in place; rows[k] = ids[k].shape + [dim_k]
//       tables (list of int)        table numbers, those of the handles first, then those of the ids
//       dims (list of int)          row width of each id input
//       versioned (bool)            wait until the servers applied as many rounds as steps were made (BSP)
//       insert (bool)               unseen keys become rows (training), or read as their first values
//       votes (bool)                the last output is 1 when a worker voted to stop in an earlier round
//   braid.PsPush(gradients..., (indices, values)..., [vote])
//       dense_tables, sparse_tables (lists of int), dims (list of int), sequence (int): the bucket's number
//       in the step; votes (bool): the last input is braid.StopVote's; examples (int): behind the gradients,
//       counted by servers
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {
void register_ps_ops(OpRegistry& registry);
}
