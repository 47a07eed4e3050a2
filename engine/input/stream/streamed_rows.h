// The rows of a block source in the order of a stream plan, read ahead: what a Batcher is given in place of a
// table. Holds the windows that batches in the making need, and those that come next as far as a budget of
// bytes goes. Bits never depend on what is held: a window that is not there is read by who needs it.
//
// Thread rule: pick() from any number of threads; tickets may be asked for in any order, quickly where they
// rise.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/input/schema/table.h"
#include "engine/input/stream/block_source.h"
#include "engine/input/stream/stream_plan.h"

namespace braid {

struct StreamedRowsOptions {
  /// Rows of all shards' windows together, about: how far rows are mixed.
  std::int64_t window_rows = std::int64_t{1} << 18;
  int shards = 16;
  /// Of rows that are held or being read. Windows that a batch needs now are read in any case.
  std::int64_t memory_bytes = std::int64_t{256} << 20;
  /// The same, where the machine has less to spare: with it nothing is read ahead beyond that. Changes no
  /// batch, as `memory_bytes` does.
  std::int64_t ahead_bytes = std::numeric_limits<std::int64_t>::max();
  int threads = 2;  // that read ahead; 0: none does
  /// Of one wait for a window that another thread reads.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  /// The first batch, at a number or behind it, that is known to be asked for: windows of others are not read
  /// ahead. Called under a lock, so it must not block. Empty: each batch is.
  std::function<std::optional<std::uint64_t>(std::uint64_t)> next_asked = {};
};

struct StreamedRowsStatistics {
  std::int64_t held_bytes = 0, most_bytes = 0;
  std::int64_t windows_read = 0;
  std::int64_t windows_waited = 0;  // that were not there when a batch needed them
};

class StreamedRows {
 public:
  /// Rows of one table, in order.
  struct Picked {
    std::shared_ptr<const Table> table;
    std::vector<std::int64_t> rows;
  };

  /// Throws: as BatchPlan.
  StreamedRows(std::shared_ptr<BlockSource> source, const StreamedRowsOptions& options,
               const BatchOptions& batches);
  /// In the order of another plan. `source` has the blocks that the plan names.
  StreamedRows(std::shared_ptr<BlockSource> source, std::unique_ptr<WindowPlan> plan,
               const StreamedRowsOptions& options, const BatchOptions& batches);
  ~StreamedRows();
  StreamedRows(const StreamedRows&) = delete;
  StreamedRows& operator=(const StreamedRows&) = delete;

  std::shared_ptr<const Table> columns() const;
  /// Some rows from all over the data, which say how long those of ragged columns are; null where there is no
  /// ragged column.
  std::shared_ptr<const Table> sample() const;
  std::int64_t rows() const;
  std::int64_t batches_per_epoch() const;
  /// Windows of so many blocks are in use, of so many shards: "16 shards, windows of 4 blocks".
  std::string describe() const;
  /// What decides the order beside rows, batch and seed, for cursors: "stream=<hash>".
  std::string order_id() const;
  /// WindowPlan::place_of.
  std::string place_of(std::uint64_t ticket) const;

  /// This worker's rows of batch `ticket`: `picked` has as many entries as are returned, the rest is left as
  /// it was. Throws what a read threw; DeadlineExceeded; OutOfRange at the end of rows that come once; once
  /// `stop` is requested also Cancelled, where it would wait for rows that do not exist yet.
  std::size_t pick(std::uint64_t ticket, std::vector<Picked>& picked, const std::stop_token& stop = {});

  StreamedRowsStatistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
