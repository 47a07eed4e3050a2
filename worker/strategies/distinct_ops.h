// Ops of the HYBRID strategy for tables that live whole on one rank, their owner, and whose distinct rows
// travel: each id once, in lists that every rank makes of its own batch (braid.DistinctRows). They use the
// comm::Communicator that the runtime's services provide, on the comm lane. Every rank has as many ids of a
// table, n; lists have room for all of them, and -1 behind the last. T tables, float32 rows.
//   braid.RowsFromOwners(handle x T, wanted x T, places x T) -> rows x T: in the shape of places, each the
//     row that it names in this rank's list. `wanted` [ranks * n] int32 are the lists of all ranks at the
//     owner, in their order, and [0] elsewhere.
//   braid.SumsToOwners(sums x T, lists x T, wanted x T) -> sums x T: at the owner [ranks * n, width], what
//     all ranks have of it, in their order; elsewhere [0, width]. Rows of no id are not sent and hold
//     anything there, unless the attribute `fill` asks for zeros (on hosts: bytes `fill_byte`).
// Attributes: owners (a rank for each table), rank, world, on_device. On devices rows travel without the host
// (comm/piece_exchange.h), and no more than the lists have.
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

void register_distinct_ops(OpRegistry& registry);

}  // namespace braid::worker
