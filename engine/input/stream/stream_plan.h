// Which rows of which blocks make up batch t of a stream: a pure function of (blocks, seed, t), so that any
// thread makes any batch, and a restart begins anywhere.
//
// An epoch is a permutation of the blocks, taken as one sequence of rows. It is cut into `shards` parts of
// equal steps, the virtual shards; each gives its share of every global batch (row_part), so a batch mixes
// as many places of the data as there are shards. Within a shard the rows of `window_blocks` neighbouring
// blocks of the sequence, a window, are permuted. Workers take contiguous parts of global batches, that is,
// whole shards where their number divides that of shards; what a global batch is does not depend on them.
//
// Rows of an epoch that fill no batch are left out, or, with carry_remainder, make up batches together with
// the next epoch's first rows: those are lanes of their own, before and behind the shards'.
//
// Thread rule: const functions from any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/input/schema/table.h"
#include "engine/input/stream/block_source.h"

namespace braid {

struct BatchPlanOptions {
  std::int64_t global_batch = 1;
  bool shuffle = true;  // false: rows in the order of the files, from one shard
  bool carry_remainder = false;
  std::uint64_t seed = 0;
  int shards = 1;
  std::int64_t window_blocks = 1;  // of each shard
};

/// Rows of one lane of an epoch that are permuted together.
struct StreamWindow {
  std::uint64_t epoch = 0;
  std::int64_t lane = 0;
  std::int64_t index = 0;
  friend auto operator<=>(const StreamWindow&, const StreamWindow&) = default;
};

/// Rows [first, first + rows) of a window's order.
struct WindowRun {
  StreamWindow window;
  std::int64_t first = 0, rows = 0;
};

class BatchPlan {
 public:
  /// Throws: InvalidArgument (no rows; fewer than a batch, unless remainders are carried).
  BatchPlan(const std::vector<DataBlock>& blocks, const BatchPlanOptions& options);

  std::int64_t rows() const { return rows_; }
  std::int64_t batches_per_epoch() const { return rows_ / options_.global_batch; }
  const BatchPlanOptions& options() const { return options_; }

  /// Appends the rows `part` of global batch `ticket`, in their order.
  void add_runs(std::uint64_t ticket, RowPart part, std::vector<WindowRun>& runs) const;
  /// The blocks' rows of a window.
  std::vector<BlockPart> parts_of(const StreamWindow& window) const;
  /// The order in which the rows that parts_of() names are used.
  std::vector<std::uint32_t> order_of(const StreamWindow& window) const;
  std::int64_t rows_of(const StreamWindow& window) const;
  /// The first and the last batch that has rows of it.
  std::pair<std::uint64_t, std::uint64_t> tickets_of(const StreamWindow& window) const;

 private:
  struct Epoch;
  struct Span {  // of positions in the sequence of an epoch
    std::int64_t begin = 0, end = 0;
  };
  std::shared_ptr<const Epoch> epoch_of(std::uint64_t epoch) const;
  std::shared_ptr<const Epoch> make_epoch(std::uint64_t epoch) const;
  Span lane_of(const Epoch& epoch, std::int64_t lane) const;
  Span span_of(const Epoch& epoch, const StreamWindow& window) const;
  /// What `part` of a whole batch, the epoch's `step`th, has of each lane.
  void add_step(const Epoch& epoch, std::int64_t step, RowPart part, std::vector<WindowRun>& runs) const;
  void add_span(const Epoch& epoch, std::int64_t lane, Span span, std::vector<WindowRun>& runs) const;
  std::int64_t head_lane() const { return options_.shards; }
  std::int64_t tail_lane() const { return options_.shards + 1; }

  // Set once.
  BatchPlanOptions options_;
  std::vector<std::size_t> blocks_;       // those with rows
  std::vector<std::int64_t> block_rows_;  // of those
  std::int64_t rows_ = 0;

  mutable std::mutex mu_;
  mutable std::vector<std::shared_ptr<const Epoch>>
      epochs_;  // guarded by mu_: the latest that were asked for
};

}  // namespace braid
