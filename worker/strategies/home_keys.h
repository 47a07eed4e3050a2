// braid.HomeKeys(lists...) -> received..., then places, keys and counts of each group: the ids that all
// workers will name in a step, at the worker that is the home of their rows (home_tables.h). On the lane of
// pulls, by the communicator between hosts (home_link.h).
//
//   lists     of each table, of this worker: [ranks, C] i64 of braid.BucketIds with split "hashed"
//   received  of each table: block r holds the ids, not the rows of a part, that rank r sent; -1 behind them
//   places    of each group, i32, one table's behind another's, in the order of `received`: the place in its
//             keys; -1 where there is no id. One piece, as each copy to a device takes its time
//   keys      of each group, [1, ids of its lists] i64, and counts, [servers, tables] i64: as those of
//             braid.PsKeys, each id of a table once, whoever has sent it
//
// Attributes: rows (of each table), group_tables (how many tables each group has, which follow each other),
// servers, rank.
#pragma once

namespace braid {
class OpRegistry;
}

namespace braid::worker {

void register_home_keys(OpRegistry& registry);

}  // namespace braid::worker
