// Training data in memory, column by column, and the batches cut from it. Which rows make up batch t is a
// pure function of (seed, t), so any thread can make any batch, a shuffle needs no state beyond its position,
// and a restart goes on where the last consumed batch ended.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/input/schema/column_table.h"
#include "engine/input/schema/row_work.h"
#include "engine/ir/tensor.h"
#include "engine/staging/block_pool.h"
#include "engine/staging/stage.h"

namespace braid {

/// A column of the schema in one of the table's, where several stand side by side.
struct TableField {
  std::string name;
  std::int64_t length = 1;  // values of a row
  std::int64_t ids = 0;     // of a category: they are below it; 0: not known
  bool filled = true;       // 0 fills its list, and is no id
  ColumnTable table = {};
};

struct TableColumn {
  std::string name;
  Tensor data;                          // [rows, row shape...]; of a ragged one [values] int64
  float scale = 1.0F;                   // uint8 columns are delivered as float32 value * scale
  std::vector<TableField> fields = {};  // in their order; empty: not known
  Tensor offsets = {};                  // [rows + 1] int64, of a ragged one: where each row's values begin
  Tensor weights = {};                  // [values] float32, of a ragged one that has weights
  std::int64_t batch_values = 0;        // of a ragged one, that a batch may have; 0: what the rows say
  bool ragged() const { return offsets.defined(); }
};

struct Table {
  std::vector<TableColumn> columns;
  std::int64_t rows = 0;
  std::int64_t skipped = 0;                 // bad records that were left out
  std::int64_t rows_of_all = 0;             // records of all shards of the rows, bad ones too; 0: not counted
  std::vector<std::string> keys = {};       // of each row, where ReadOptions asks for them
  std::vector<std::int64_t> bad_rows = {};  // those of zeros that stand for bad records (ReadOptions)
  const TableColumn* find(const std::string& name) const;
};

/// The rank-th of `world` contiguous parts of `rows` rows, whose sizes differ by one at most: the first ones
/// are the larger ones.
struct RowPart {
  std::int64_t first = 0, rows = 0;
};
constexpr RowPart row_part(std::int64_t rows, int rank, int world) {
  const std::int64_t least = rows / world, larger = rows % world;
  return {rank * least + (rank < larger ? rank : larger), least + (rank < larger ? 1 : 0)};
}

/// Throws: InvalidArgument when a global batch has fewer rows than there are workers.
void check_global_batch(std::int64_t rows, int world);

/// The column of what ReadOptions::group_column says, int64 [rows].
inline constexpr const char* kGroupColumn = "@group";

struct BatchOptions {
  std::int64_t global_batch = 1;  // rows a step over all workers
  int rank = 0;  // this worker takes the rank-th contiguous part of every global batch (row_part)
  int world = 1;
  /// It takes other rows of it instead, as many, so that all workers have about as much work: deal_rows() of
  /// the ragged columns that are delivered, if there is one. They keep the order of the batch.
  bool equal_work = false;
  RowWork work = {};
  bool shuffle = true;
  /// Evaluation: the last batch of an epoch may be smaller, and the sequence ends after one epoch.
  bool keep_remainder = false;
  std::uint64_t seed = 0;
  /// Rows among which the next one of a shuffled epoch is drawn; 0: any order of the epoch is as likely.
  std::int64_t shuffle_buffer = 0;
  /// Rows that fill no batch begin the next epoch's first one; else they are left out. A table may then be
  /// smaller than a batch.
  bool carry_remainder = false;
  /// Who takes the batches grows the room of ragged columns when one asks for more: it begins with what is
  /// usual, which pads less. Else it is what any batch can have.
  bool room_grows = false;
  /// uint8 columns are delivered without their scale, ids that their fields bound as int32: who is fed casts.
  bool as_stored = false;
  /// Memory of batches; empty: the host's. From page-locked memory a device takes a batch without a copy by
  /// the thread that starts the step.
  BlockPool::Allocate allocate = {};
};

class StreamedRows;

/// Cuts a table into batches. A ragged column "tags" is delivered as its values, with room for more, "tags"
/// [room] int64, the last one again and again; "tags/offsets" [rows + 1] int32, the parts of them that are
/// the rows'; "tags/weights" [room] float32; and "tags/longest" [2] int32, the longest list of this worker's
/// rows and of the whole batch, or the former again where other workers' rows are not known: of streams
/// without equal_work. The room is the same for all batches
/// (engine/input/schema/ragged_room.h) until grow(). Thread rule: make() and outgrown() from any number of
/// threads.
class Batcher {
 public:
  /// `columns` are the names to deliver, in order. Throws: InvalidArgument (an unknown column, an empty
  /// table, a table smaller than one global batch, a global batch of fewer rows than workers).
  Batcher(std::shared_ptr<const Table> table, std::vector<std::string> columns, BatchOptions options);
  /// The same of rows that are read while they are used, in their own order. REQUIRES: `options` are those
  /// that `rows` were made with, without keep_remainder; with equal_work `rows` were made for one worker.
  Batcher(std::shared_ptr<StreamedRows> rows, std::vector<std::string> columns, BatchOptions options);

  std::int64_t batches_per_epoch() const { return batches_per_epoch_; }
  /// Type and shape of each delivered column for a batch of `rows`.
  DType dtype(std::size_t column) const;
  float scale(std::size_t column) const { return column_of(*table_, column).scale; }
  Shape shape(std::size_t column, std::int64_t rows) const;
  /// Whether a delivered column is of a ragged one.
  bool ragged(std::size_t column) const { return columns_[column].part != Part::Rows; }

  /// Batch `ticket` of the endless sequence (or of one epoch, then OutOfRange). Its cursor is "ticket=<ticket
  /// + 1>". `stop` ends a wait for rows that do not exist yet. Throws also: Cancelled; InvalidArgument (more
  /// values of a ragged column than there is room for: the column, both numbers, the row that has most of
  /// them).
  Batch make(std::uint64_t ticket, const std::stop_token& stop = {});
  std::int64_t rows_of(std::uint64_t ticket) const;

  /// Delivers these of its columns alone from now on, in this order. REQUIRES: no make() at work.
  void keep_columns(const std::vector<std::string>& names);

  /// make() has refused a batch for want of room that grow() would make: all but that of
  /// TableColumn::batch_values, which is a limit.
  bool outgrown() const;
  /// Makes room for those batches. Result: "'tags' from 96 to 192". REQUIRES: outgrown(), no make() at work.
  std::string grow();

  /// The cursor of where batch `ticket` begins as a checkpoint has it, with what it counts in: "ticket=<n>
  /// epoch=<n> position=<row of the epoch> rows=<n> batch=<n> seed=<n>".
  std::string cursor(std::uint64_t ticket) const;
  /// The ticket that a cursor points at. Throws: DataLoss when it is not one of ours.
  static std::uint64_t ticket_of(const std::string& cursor);

 private:
  using Order = std::shared_ptr<const std::vector<std::int64_t>>;
  enum class Part { Rows, Values, Offsets, Weights, Longest };
  struct Delivered {
    std::size_t place = 0;  // of its column in the table
    Part part = Part::Rows;
    std::int64_t room = 0;  // of values and weights
  };
  Order order_of(std::uint64_t epoch) const;
  Order permutation(std::uint64_t epoch);
  void prepare_permutation(std::uint64_t epoch);
  RowPart part_of(std::int64_t rows) const;
  std::int64_t global_rows_of(std::uint64_t ticket) const;
  /// Whether it picks from all rows of a batch.
  bool deals() const { return options_.equal_work && options_.world > 1 && !work_places_.empty(); }
  /// Whether it looks at all rows of a batch: to deal them, or to find the longest list.
  bool picks_all() const { return deals() || (needs_longest_ && options_.world > 1 && !streamed_); }
  void pick_rows(std::uint64_t ticket, RowPart part, std::vector<std::int64_t>& rows);
  Delivered find_column(const std::string& name) const;
  void find_columns(const std::vector<std::string>& names);
  void find_work();
  const TableColumn& column_of(const Table& table, std::size_t column) const {
    return table.columns[columns_[column].place];
  }
  std::int64_t room_for(const TableColumn& column) const;
  void copy_column(std::size_t column, const Table& from, const std::vector<std::int64_t>& rows,
                   std::byte* to) const;
  struct Rows;
  /// A delivered column of these rows; `row_bytes` are of one that is not ragged.
  void copy_part(std::size_t column, const Rows& rows, std::uint64_t ticket, std::size_t row_bytes,
                 std::byte* to);
  void set_block_bytes();

  // Set once, but for the rooms of columns_, which grow() sets, with block_bytes_.
  std::shared_ptr<const Table> table_;      // of streamed rows the columns, without any
  std::shared_ptr<StreamedRows> streamed_;  // null: rows are the table's
  std::int64_t rows_ = 0;                   // of an epoch
  std::vector<Delivered> columns_;
  bool needs_longest_ = false;            // of a ragged column, it is delivered
  std::vector<std::size_t> work_places_;  // in the table, of ragged columns that were delivered at first
  BatchOptions options_;
  std::int64_t batches_per_epoch_ = 0;
  std::size_t block_bytes_ = 0;  // of a batch
  std::shared_ptr<BlockPool> pool_;

  mutable std::mutex mu_;
  // Guarded by mu_: values that there was no room for, by place in the table; and the row orders of the
  // epochs in use, the latest of which threads may still be making.
  std::map<std::size_t, std::int64_t> wanted_;
  std::vector<std::pair<std::uint64_t, std::shared_future<Order>>> permutations_;
};

}  // namespace braid
