// Ops of strategies that keep sparse tables on parameter servers, for tables of one dim each (a group):
//   braid.PsKeys(ids..., any shapes) -> keys [1, n] int64, counts [servers, tables] int64, entries [n] int64,
//     places...: the distinct ids of a batch in the order in which requests send them, and how to get back,
//     as ps/client/ordered_keys.h says. n is the number of all ids; places, int32, have the shapes of the
//     ids. Places and entries are those of braid.Unbucket and braid.SumBuckets. It needs ids alone, so it
//     runs in a stage. Attributes: lists (the table of each input, rising), servers.
//   braid.PsRows(keys, counts of each group) -> rows [1, n, dim] of each group, votes: pulls. Attributes: as
//     below; versioned, ahead, votes, fill (zeros behind the rows).
//   braid.PsPushRows(keys, counts, gradients [1, n, dim] of each group, vote): pushes. Attributes: as below;
//     votes, examples, sequence.
// Attributes of both: tables (numbers in the table set, group by group), group_tables and dims (by group).
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

void register_ordered_rows_ops(OpRegistry& registry);

}  // namespace braid::worker
