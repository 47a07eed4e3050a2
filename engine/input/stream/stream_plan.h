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
#include <limits>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/init.h"
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

/// Of a plan whose rows nobody has counted.
inline constexpr std::int64_t kEndlessRows = std::numeric_limits<std::int64_t>::max() / 4;

/// Which rows a batch has, as windows of neighbouring blocks. Thread rule: any number of threads.
class WindowPlan {
 public:
  virtual ~WindowPlan() = default;

  virtual std::int64_t rows() const = 0;  // of an epoch
  virtual std::int64_t batches_per_epoch() const = 0;
  /// add_runs() would not wait, and would not throw.
  virtual bool knows(std::uint64_t ticket) const = 0;
  /// Appends the rows `part` of global batch `ticket`, in their order. Throws: OutOfRange where there is an
  /// end, and the batch is behind it; what waiting for it throws.
  virtual void add_runs(std::uint64_t ticket, RowPart part, std::vector<WindowRun>& runs,
                        const std::stop_token& stop) const = 0;
  /// The blocks' rows of a window.
  virtual std::vector<BlockPart> parts_of(const StreamWindow& window) const = 0;
  /// The order in which the rows that parts_of() names are used.
  virtual std::vector<std::uint32_t> order_of(const StreamWindow& window) const = 0;
  virtual std::int64_t rows_of(const StreamWindow& window) const = 0;
  /// The first and the last batch that has rows of it.
  virtual std::pair<std::uint64_t, std::uint64_t> tickets_of(const StreamWindow& window) const = 0;

  /// "16 virtual shards, windows of 4 blocks".
  virtual std::string describe() const = 0;
  /// What decides the order beside the data, batch and seed.
  virtual std::string order_text() const = 0;
  /// Where a batch begins, for cursors, where that is more than its number; else empty.
  virtual std::string place_of(std::uint64_t /*ticket*/) const { return {}; }
};

/// A permutation of so many rows, by counter-based bits. Throws: InvalidArgument (more than 2^32).
std::vector<std::uint32_t> window_order(std::int64_t rows, bool shuffle, RngKey key);

class BatchPlan : public WindowPlan {
 public:
  /// Throws: InvalidArgument (no rows; fewer than a batch, unless remainders are carried).
  BatchPlan(const std::vector<DataBlock>& blocks, const BatchPlanOptions& options);

  std::int64_t rows() const override { return rows_; }
  std::int64_t batches_per_epoch() const override { return rows_ / options_.global_batch; }
  const BatchPlanOptions& options() const { return options_; }

  bool knows(std::uint64_t) const override { return true; }
  void add_runs(std::uint64_t ticket, RowPart part, std::vector<WindowRun>& runs,
                const std::stop_token& stop = {}) const override;
  std::vector<BlockPart> parts_of(const StreamWindow& window) const override;
  std::vector<std::uint32_t> order_of(const StreamWindow& window) const override;
  std::int64_t rows_of(const StreamWindow& window) const override;
  std::pair<std::uint64_t, std::uint64_t> tickets_of(const StreamWindow& window) const override;
  std::string describe() const override;
  std::string order_text() const override;

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
