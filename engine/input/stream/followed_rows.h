// The rows of files that appear while they are used (engine/input/stream/file_feed.h), as one endless
// sequence: batch t has rows [t * batch, (t + 1) * batch) of it, across the ends of files. Within a file the
// rows of neighbouring blocks, a window, are permuted; a window never has rows of two files, so that a file
// can be used as soon as it is there. A pure function of (files in their order, seed, t).
//
// With several lanes there are as many sequences. Each file is dealt to the one that has the fewest rows, and
// each gives its share of every batch (row_part), so that a worker reads the files of its own lanes.
//
// Thread rule: any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/input/stream/block_source.h"
#include "engine/input/stream/file_feed.h"
#include "engine/input/stream/stream_plan.h"

namespace braid {

struct FollowedOptions {
  std::int64_t global_batch = 1;
  std::int64_t window_rows = std::int64_t{1} << 18;
  bool shuffle = true;
  std::uint64_t seed = 0;
};

/// The blocks of one file. Throws: DataLoss, InvalidArgument (file and place).
using OpenBlocks = std::function<std::shared_ptr<BlockSource>(const std::string& file)>;

/// A source of blocks that become more: block b of file f, from 0, has the number (f + 1) * 2^32 + b.
class FollowedFiles : public BlockSource {
 public:
  /// Waits until there is a file with rows. The latest of what the feed knows from the start must be there:
  /// its columns are those of all. Throws: InvalidArgument (the input ends without a file); as FileFeed::get
  /// and OpenBlocks.
  FollowedFiles(std::shared_ptr<FileFeed> feed, OpenBlocks open, int lanes = 1);
  ~FollowedFiles() override;

  /// Those of one file, by their numbers there.
  const std::vector<DataBlock>& blocks() const override { return one_->blocks(); }
  std::shared_ptr<const Table> columns() const override { return one_->columns(); }
  std::shared_ptr<const Table> read(std::span<const BlockPart> parts) override;
  std::string describe(std::size_t block) const override;
  std::uint64_t fingerprint() const override { return 0; }
  /// Of all files, which share how they are read.
  FileReadTotals reads() const override { return one_->reads(); }

  struct File {
    TakenFile taken;
    int lane = 0;
    std::int64_t begin = 0;  // its first row in the lane's sequence
  };
  int lanes() const { return static_cast<int>(lanes_.size()); }
  /// The files are known up to the share of each lane in `batches` batches of so many rows. False: there are
  /// fewer, and no more will come.
  bool reach(std::int64_t batches, std::int64_t batch_rows, const std::stop_token& stop);
  /// reach() would return true at once.
  bool has(std::int64_t batches, std::int64_t batch_rows) const;
  /// The number of the file that has a row of a lane, and the file. REQUIRES: it is known.
  std::pair<std::size_t, File> file_at(int lane, std::int64_t row) const;
  File file(std::size_t n) const;
  std::shared_ptr<BlockSource> source_of(std::size_t n) const;

 private:
  std::shared_ptr<BlockSource> open(const TakenFile& file) const;
  std::shared_ptr<BlockSource> source_of_block(std::size_t block) const;
  /// False: there is none. REQUIRES: growing_.
  bool take_next(const std::stop_token& stop);

  // Set once.
  const std::shared_ptr<FileFeed> feed_;
  const OpenBlocks open_;
  std::shared_ptr<BlockSource> one_;

  std::mutex growing_;  // held by who waits for the next file
  ErrorPtr failed_;     // by growing_: why no more can come, which others need not wait to hear
  mutable std::mutex mu_;
  // Guarded by mu_.
  std::vector<File> files_;
  mutable std::vector<std::pair<std::size_t, std::shared_ptr<BlockSource>>> open_files_;  // the latest used
  struct Lane {
    std::vector<std::size_t> files;  // their numbers
    std::int64_t rows = 0;
  };
  std::vector<Lane> lanes_;
};

/// REQUIRES: `files` outlives it.
class FollowPlan : public WindowPlan {
 public:
  FollowPlan(std::shared_ptr<FollowedFiles> files, const FollowedOptions& options);

  std::int64_t rows() const override { return kEndlessRows; }
  std::int64_t batches_per_epoch() const override { return kEndlessRows / options_.global_batch; }
  bool knows(std::uint64_t ticket) const override;
  void add_runs(std::uint64_t ticket, RowPart part, std::vector<WindowRun>& runs,
                const std::stop_token& stop) const override;
  std::vector<BlockPart> parts_of(const StreamWindow& window) const override;
  std::vector<std::uint32_t> order_of(const StreamWindow& window) const override;
  std::int64_t rows_of(const StreamWindow& window) const override;
  std::pair<std::uint64_t, std::uint64_t> tickets_of(const StreamWindow& window) const override;
  std::string describe() const override;
  std::string order_text() const override;
  std::string place_of(std::uint64_t ticket) const override;

 private:
  /// Where a file's windows begin: rows, and the blocks that these are in; the end last.
  struct Windows {
    std::vector<std::int64_t> rows;
    std::vector<std::size_t> blocks;
  };
  std::shared_ptr<const Windows> windows_of(std::size_t file) const;
  std::int64_t add_run(int lane, std::int64_t at, std::int64_t end, std::vector<WindowRun>& runs) const;

  // Set once.
  const std::shared_ptr<FollowedFiles> files_;
  const FollowedOptions options_;

  mutable std::mutex mu_;
  mutable std::vector<std::pair<std::size_t, std::shared_ptr<const Windows>>> windows_;  // of some files; mu_
};

}  // namespace braid
