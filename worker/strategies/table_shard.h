// How one table of a HYBRID job lies on the ranks, and this rank's part of it. What the ops of a step do with
// ids by engine/ops/common/row_buckets.h, this says row by row for what happens outside of steps: initial
// values, checkpoints, evaluations. Thread rule: values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/shape.h"
#include "engine/ops/common/row_buckets.h"
#include "engine/ops/state/initial_rows.h"

namespace braid::worker {

/// In the order of proto::TableMatch::Plan.
enum class TablePlan { Auto, Replicate, Table, Column, Row };
std::string_view table_plan_name(TablePlan plan);

struct TableShard {
  std::string name;
  std::string former_name;  // of older checkpoints; empty: the same
  std::int64_t rows = 0, dim = 0;
  TablePlan plan = TablePlan::Row;
  int owner = 0;         // of Table
  bool all_ids = false;  // all travels as the batch has it (owner_ops.h), or is summed densely (Replicate)
  int rank = 0, world = 1;
  InitSpec init;
  std::vector<std::string> slots;    // of the optimizer: "m", "v"
  std::vector<float> slot_initials;  // their values in fresh rows
  bool row_wise = false;             // slots have a number a row, not one an element
  std::int64_t hot_rows = 0;         // that are wanted beside plan ROW
  std::vector<std::int64_t> hot;     // those rows, rising: on every rank, in a variable of their own

  /// How many hot rows the plan has, at most.
  std::int64_t most_hot() const { return plan == TablePlan::Row && world > 1 ? std::min(hot_rows, rows) : 0; }
  /// The place of a row among the hot ones; -1: it is none.
  std::int64_t hot_place(std::int64_t row) const;

  bool sharded() const { return plan != TablePlan::Replicate; }
  RowBuckets buckets() const;
  /// Of the variable on this rank; 1 row where it holds none, so that every rank has the variable.
  Shape local_shape() const;
  std::int64_t local_rows() const;
  std::int64_t slot_dim() const { return row_wise ? 1 : dim; }
  /// Numbers of the whole table and its slots.
  std::int64_t elements() const { return rows * (dim + std::ssize(slots) * slot_dim()); }
  std::int64_t local_dim() const { return plan == TablePlan::Column ? dim / world : dim; }
  /// The first of the columns that this rank holds.
  std::int64_t first_column() const { return plan == TablePlan::Column ? rank * local_dim() : 0; }

  /// Of all_ids: pieces of a row, each of which has an owner.
  int parts() const { return plan == TablePlan::Column ? world : 1; }
  int owner_of(int part) const { return plan == TablePlan::Column ? part : owner; }
  /// The piece that this rank has if it owns any.
  int own_part() const { return plan == TablePlan::Column ? rank : 0; }

  /// How the rows that this rank holds begin; its variable may have a row more, of zeros.
  InitialRows initial_rows(RngKey key) const;

  int rank_of(std::int64_t row) const;
  /// The row of `row` in the variable of a rank that holds it.
  std::int64_t local_row(std::int64_t row) const;
  /// Calls visit(row, local row) for every row that this rank holds, by rising local row.
  void for_each_row(const std::function<void(std::int64_t, std::int64_t)>& visit) const;
  bool holds(std::int64_t row) const;
  /// Bytes of so many rows of a rank, with their slots.
  std::int64_t bytes_of_rows(std::int64_t count) const;
  /// Bytes of values and slots on this rank.
  std::int64_t local_bytes() const;
};

}  // namespace braid::worker
