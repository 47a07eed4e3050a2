#include "engine/input/stream/row_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/schema/ragged_room.h"

namespace braid {
namespace {

class RowBlocks : public BlockSource {
 public:
  RowBlocks(std::vector<IndexedFile> files, MakeRowStream make, std::int64_t max_bad_records,
            std::shared_ptr<FileReads> reads)
      : files_(std::move(files)),
        make_(std::move(make)),
        max_bad_records_(max_bad_records),
        reads_(std::move(reads)) {
    std::string text;
    for (std::size_t f = 0; f < files_.size(); ++f) {
      text += fmt::format("{} ", files_[f].header_end);
      for (std::size_t b = 0; b < files_[f].blocks.size(); ++b) {
        const IndexedBlock& block = files_[f].blocks[b];
        blocks_.push_back({f, block.rows, block.end - block.begin});
        places_.push_back(b);
        text += fmt::format("{} {} {} {};", block.begin, block.end, block.rows, block.crc);
      }
    }
    fingerprint_ = stable_hash(text);
    std::unique_ptr<RowStream> stream = make_stream();
    columns_ = stream->next(0);
    idle_.push_back(std::move(stream));
  }

  const std::vector<DataBlock>& blocks() const override { return blocks_; }
  std::shared_ptr<const Table> columns() const override { return columns_; }
  std::uint64_t fingerprint() const override { return fingerprint_; }
  FileReadTotals reads() const override { return reads_ ? reads_->totals() : FileReadTotals{}; }

  std::shared_ptr<const Table> read(std::span<const BlockPart> parts) override {
    std::vector<FilePiece> pieces;
    std::int64_t rows = 0;
    for (const BlockPart& part : parts) {
      FilePiece piece = files_[blocks_[part.block].file].piece(places_[part.block]);
      piece.skip = part.first;
      piece.take = part.rows;
      piece.reads = reads_;
      rows += part.rows;
      pieces.push_back(std::move(piece));
    }
    std::unique_ptr<RowStream> stream = take();
    stream->begin(std::move(pieces));
    std::shared_ptr<Table> table = stream->next(rows);
    if (table->rows != rows)
      throw DataLoss(fmt::format("{}: {} records of {} that its index has: the file was changed since",
                                 describe(parts.back().block), table->rows, rows));
    give_back(std::move(stream));
    if (!table->bad_rows.empty()) replace_bad(*table, parts);
    return table;
  }

  std::string describe(std::size_t block) const override {
    const IndexedFile& file = files_[blocks_[block].file];
    const IndexedBlock& its = file.blocks[places_[block]];
    return fmt::format("'{}' {} {} to {}", file.file.string(), file.unit, its.begin, its.end);
  }

 private:
  std::unique_ptr<RowStream> make_stream() const {
    ReadOptions read;
    read.keep_bad_records = true;
    read.max_bad_records = max_bad_records_ == 0 ? 0 : std::numeric_limits<std::int64_t>::max();
    return make_(read);
  }
  std::unique_ptr<RowStream> take() {
    {
      std::lock_guard lock(mu_);
      if (!idle_.empty()) {
        std::unique_ptr<RowStream> stream = std::move(idle_.back());
        idle_.pop_back();
        return stream;
      }
    }
    return make_stream();
  }
  void give_back(std::unique_ptr<RowStream> stream) {
    std::lock_guard lock(mu_);
    idle_.push_back(std::move(stream));
  }

  /// Rows that stand for bad records become their neighbours.
  void replace_bad(Table& table, std::span<const BlockPart> parts) {
    count_bad(table, parts);
    std::vector<bool> is_bad(static_cast<std::size_t>(table.rows));
    for (const std::int64_t row : table.bad_rows) is_bad[static_cast<std::size_t>(row)] = true;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(table.rows));
    std::iota(rows.begin(), rows.end(), 0);
    for (const std::int64_t row : table.bad_rows) {
      std::int64_t good = -1;
      for (std::int64_t away = 1; away < table.rows && good < 0; ++away) {
        if (row - away >= 0 && !is_bad[static_cast<std::size_t>(row - away)]) good = row - away;
        if (good < 0 && row + away < table.rows && !is_bad[static_cast<std::size_t>(row + away)])
          good = row + away;
      }
      if (good < 0) throw DataLoss(describe(parts[0].block) + ": all records are bad");
      rows[static_cast<std::size_t>(row)] = good;
    }
    for (TableColumn& column : table.columns) column = rows_of_column(column, rows);
    table.bad_rows.clear();
  }

  void count_bad(const Table& table, std::span<const BlockPart> parts) {
    std::lock_guard lock(mu_);
    auto part = parts.begin();
    std::int64_t before = 0;
    for (const std::int64_t row : table.bad_rows) {
      for (; row - before >= part->rows; ++part) before += part->rows;
      bad_.emplace(part->block, part->first + row - before);
    }
    if (std::ssize(bad_) > max_bad_records_)
      throw DataLoss(fmt::format("{}: {} bad records, at most {} are skipped", describe(part->block),
                                 bad_.size(), max_bad_records_));
  }

  // Set once.
  const std::vector<IndexedFile> files_;
  const MakeRowStream make_;
  const std::int64_t max_bad_records_;
  const std::shared_ptr<FileReads> reads_;
  std::vector<DataBlock> blocks_;
  std::vector<std::size_t> places_;  // of each block in its file
  std::shared_ptr<const Table> columns_;
  std::uint64_t fingerprint_ = 0;

  std::mutex mu_;
  // Guarded by mu_.
  std::vector<std::unique_ptr<RowStream>> idle_;
  std::set<std::pair<std::size_t, std::int64_t>> bad_;  // records that were bad
};

}  // namespace

std::unique_ptr<BlockSource> make_row_blocks(std::vector<IndexedFile> files, MakeRowStream make,
                                             std::int64_t max_bad_records, std::shared_ptr<FileReads> reads) {
  return std::make_unique<RowBlocks>(std::move(files), std::move(make), max_bad_records, std::move(reads));
}

std::int64_t rows_of(const BlockSource& source) {
  std::int64_t rows = 0;
  for (const DataBlock& block : source.blocks()) rows += block.rows;
  return rows;
}

}  // namespace braid
