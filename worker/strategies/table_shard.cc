#include "worker/strategies/table_shard.h"

namespace braid::worker {

std::string_view table_plan_name(TablePlan plan) {
  switch (plan) {
    case TablePlan::Auto:
      return "AUTO";
    case TablePlan::Replicate:
      return "REPLICATE";
    case TablePlan::Table:
      return "TABLE";
    case TablePlan::Column:
      return "COLUMN";
    case TablePlan::Row:
      return "ROW";
  }
  return "?";
}

RowBuckets TableShard::buckets() const {
  const RowSplit split = plan == TablePlan::Row     ? RowSplit::Hashed
                         : plan == TablePlan::Table ? RowSplit::Owned
                                                    : RowSplit::All;
  return {.rows = rows, .ranks = world, .split = split, .owner = plan == TablePlan::Table ? owner : 0};
}

std::int64_t TableShard::local_rows() const {
  if (plan == TablePlan::Table && rank != owner) return 1;
  return buckets().held();
}

Shape TableShard::local_shape() const { return {local_rows(), local_dim()}; }

InitialRows TableShard::initial_rows(RngKey key) const {
  const bool is_spread = plan == TablePlan::Row;
  return {.spec = init,
          .key = key,
          .rows = plan == TablePlan::Table && rank != owner ? 0
                  : is_spread                               ? (rows - rank + world - 1) / world
                                                            : rows,
          .width = local_dim(),
          .dim = dim,
          .column = first_column(),
          .is_spread = is_spread,
          .rank = rank,
          .ranks = world,
          .shuffle = RowShuffle(is_spread ? rows : 1)};
}

int TableShard::rank_of(std::int64_t row) const {
  if (plan == TablePlan::Table) return owner;
  if (plan != TablePlan::Row) return rank;
  return static_cast<int>(RowShuffle(rows).place_of(row) % world);
}

std::int64_t TableShard::local_row(std::int64_t row) const {
  return plan == TablePlan::Row ? RowShuffle(rows).place_of(row) / world : row;
}

bool TableShard::holds(std::int64_t row) const { return rank_of(row) == rank; }

void TableShard::for_each_row(const std::function<void(std::int64_t, std::int64_t)>& visit) const {
  if (plan == TablePlan::Table && rank != owner) return;
  if (plan != TablePlan::Row) {
    for (std::int64_t row = 0; row < rows; ++row) visit(row, row);
    return;
  }
  const RowShuffle shuffle(rows);
  for (std::int64_t place = rank; place < rows; place += world) visit(shuffle.row_at(place), place / world);
}

std::int64_t TableShard::bytes_of_rows(std::int64_t count) const {
  const std::int64_t slot = row_wise ? 1 : local_dim();
  return count * (local_dim() + std::ssize(slots) * slot) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t TableShard::local_bytes() const { return bytes_of_rows(local_rows() + most_hot()); }

std::int64_t TableShard::hot_place(std::int64_t row) const {
  const auto at = std::ranges::lower_bound(hot, row);
  return at == hot.end() || *at != row ? -1 : at - hot.begin();
}

}  // namespace braid::worker
