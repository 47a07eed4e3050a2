// The rows of one piece of a Parquet file. Private to engine/input, where Arrow is there. Thread rule: one
// thread.
#pragma once

#include <parquet/file_reader.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "engine/input/formats/parquet_column.h"
#include "engine/input/formats/parquet_footer.h"

namespace braid {

/// The rows of one piece of a file, from front to back, over its row groups.
class ParquetPieceReader {
 public:
  ParquetPieceReader(std::shared_ptr<const ParquetFooter> footer, ParquetFileColumns columns,
                     std::vector<bool> dictionaries, std::int64_t first, std::int64_t end)
      : footer_(std::move(footer)),
        columns_(std::move(columns)),
        dictionaries_(std::move(dictionaries)),
        file_(footer_->open()),
        next_(first),
        end_(end) {
    while (group_ < footer_->meta->num_row_groups() && group_end() <= first)
      ++group_, group_begin_ = group_end_;
  }

  std::int64_t left() const { return end_ - next_; }
  std::int64_t row() const { return next_; }
  const ParquetFileColumns& columns() const { return columns_; }
  const std::filesystem::path& path() const { return footer_->file->path(); }

  /// So many rows can be read together: what is left of the row group.
  std::int64_t rows_at_once(std::int64_t most) {
    if (!open_) open_group();
    return std::min({most, left(), group_end_ - next_});
  }
  ParquetColumnReader& reader(std::size_t column) { return *readers_[column]; }
  ParquetColumnReader& key() { return *key_; }
  ParquetColumnReader& group() { return *group_reader_; }
  std::int64_t row_group() const { return group_; }
  /// Rows that all columns' readers have given.
  void advance(std::int64_t rows) {
    next_ += rows;
    if (next_ < group_end_) return;
    open_ = false;
    readers_.clear();
    ++group_;
    group_begin_ = group_end_;
  }

 private:
  std::int64_t group_end() { return group_end_ = group_begin_ + footer_->meta->RowGroup(group_)->num_rows(); }
  void open_group() {
    while (group_end() <= next_) ++group_, group_begin_ = group_end_;
    rows_ = file_->RowGroup(group_);
    const std::int64_t skip = next_ - group_begin_;
    readers_.clear();
    for (std::size_t c = 0; c < columns_.columns.size(); ++c) {
      const std::optional<ParquetLeaf>& leaf = columns_.columns[c];
      readers_.push_back(leaf ? ParquetColumnReader::open(*rows_, *leaf, skip, dictionaries_[c]) : nullptr);
    }
    key_ = columns_.key ? ParquetColumnReader::open(*rows_, *columns_.key, skip, false) : nullptr;
    group_reader_ =
        columns_.group ? ParquetColumnReader::open(*rows_, *columns_.group, skip, false) : nullptr;
    open_ = true;
  }

  const std::shared_ptr<const ParquetFooter> footer_;
  const ParquetFileColumns columns_;
  const std::vector<bool> dictionaries_;
  const std::unique_ptr<parquet::ParquetFileReader> file_;
  std::shared_ptr<parquet::RowGroupReader> rows_;
  std::vector<std::unique_ptr<ParquetColumnReader>> readers_;
  std::unique_ptr<ParquetColumnReader> key_, group_reader_;
  bool open_ = false;
  int group_ = 0;
  std::int64_t group_begin_ = 0, group_end_ = 0;
  std::int64_t next_, end_;
};

}  // namespace braid
