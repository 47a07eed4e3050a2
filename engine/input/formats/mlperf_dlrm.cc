#include "engine/input/formats/mlperf_dlrm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "engine/input/files/data_file.h"
#include "engine/input/files/file_piece.h"
#include "engine/input/formats/mlperf_files.h"

namespace braid {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are read as they are");

/// What is wrong with the row, or an empty text.
std::string problem_of(const MlperfRow& row, bool has_label) {
  if (has_label && row.label != 0 && row.label != 1) return fmt::format("label {} is not 0 or 1", row.label);
  for (int i = 0; i < kMlperfDense; ++i)
    if (!std::isfinite(row.dense[i])) return fmt::format("number {} is not finite", i);
  int at = 0;
  for (int c = 0; c < kMlperfColumns; ++c)
    for (std::int64_t k = 0; k < kMlperfHots[static_cast<std::size_t>(c)]; ++k, ++at)
      if (row.ids[at] < 0 || row.ids[at] >= kMlperfRows[static_cast<std::size_t>(c)])
        return fmt::format("id {} of column {} is {}, not in [0, {})", k, c, row.ids[at],
                           kMlperfRows[static_cast<std::size_t>(c)]);
  return {};
}

/// Of each id, the rows of its table.
std::array<std::uint32_t, kMlperfIds> table_rows() {
  std::array<std::uint32_t, kMlperfIds> all{};
  std::size_t at = 0;
  for (std::size_t c = 0; c < kMlperfColumns; ++c)
    for (std::int64_t k = 0; k < kMlperfHots[c]; ++k) all[at++] = static_cast<std::uint32_t>(kMlperfRows[c]);
  return all;
}

/// Ids [begin, end) of a row modulo the rows of a table that is cut. For ids below 2^26 the quotient is
/// (id * factor) >> shift with factor = 2^shift / rows rounded up, shift = 26 + log2(rows) rounded up.
struct Cut {
  static constexpr int kBits = 26;
  std::size_t begin, end;
  std::uint32_t rows, factor;
  int shift;

  void apply(std::int32_t* ids) const {
    for (std::size_t i = begin; i < end; ++i) {
      const auto id = static_cast<std::uint32_t>(ids[i]);
      const auto quotient = static_cast<std::uint32_t>((std::uint64_t{id} * factor) >> shift);
      ids[i] = static_cast<std::int32_t>(id - quotient * rows);
    }
  }
};
static_assert(*std::max_element(kMlperfRows.begin(), kMlperfRows.end()) < 1LL << Cut::kBits);

std::vector<Cut> cuts(std::int64_t max_rows) {
  std::vector<Cut> all;
  std::size_t at = 0;
  for (int c = 0; c < kMlperfColumns; ++c) {
    const std::int64_t rows = mlperf_rows(c, max_rows);
    const std::size_t begin =
        std::exchange(at, at + static_cast<std::size_t>(kMlperfHots[static_cast<std::size_t>(c)]));
    if (rows == kMlperfRows[static_cast<std::size_t>(c)]) continue;
    const auto divisor = static_cast<std::uint64_t>(rows);
    const int shift = Cut::kBits + std::bit_width(divisor - 1);
    all.push_back({begin, at, static_cast<std::uint32_t>(divisor),
                   static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + divisor - 1) / divisor), shift});
  }
  return all;
}

/// Rows [first, end) of a file.
struct RowsOfFile {
  std::filesystem::path path;
  std::shared_ptr<MlperfFile> file;
  std::int64_t first = 0, end = 0;
};

class MlperfRows : public RowStream {
 public:
  MlperfRows(const std::vector<std::filesystem::path>& files, const MlperfOptions& options)
      : pieces_(whole_files(one_of_each_stem(files))),
        options_(options),
        cuts_(cuts(options.max_rows)),
        limits_(table_rows()) {
    if (!options.read.key_column.empty() || !options.read.group_column.empty())
      throw InvalidArgument("the rows of MLPERF_DLRM have no columns for keys or groups");
    const auto& ignored = options.read.ignored;
    has_labels_ = std::find(ignored.begin(), ignored.end(), "label") == ignored.end();
  }

  void begin(std::vector<FilePiece> pieces) override {
    pieces_ = std::move(pieces);
    opened_ = 0;
    part_ = {};
    at_ = 0;
    block_.clear();
    unread_ = -1;
    begin_reads();
  }

  /// Without reading them, where all records are rows.
  std::int64_t skip(std::int64_t most) override {
    if (options_.read.max_bad_records > 0 || options_.read.world > 1 || reader_) return RowStream::skip(most);
    std::int64_t left = most;
    while (left > 0) {
      const std::int64_t in_block = std::min(left, std::ssize(block_) - static_cast<std::int64_t>(at_));
      at_ += static_cast<std::size_t>(in_block);
      left -= in_block;
      const std::int64_t in_file = std::min(left, part_.end - part_.first);
      part_.first += in_file;
      left -= in_file;
      if (left == 0) break;
      if (opened_ == pieces_.size()) break;
      part_ = open(pieces_[opened_++]);
    }
    unread_ -= unread_ < 0 ? 0 : most - left;
    seen_ += most - left;
    return most - left;
  }

  std::shared_ptr<Table> next(std::int64_t most) override {
    const std::int64_t rows = most == 0 ? 0 : std::min(most, most_left());
    auto table = std::make_shared<Table>();
    Tensor dense(DType::Float32, Shape{rows, kMlperfDense});
    Tensor sparse(DType::Int32, Shape{rows, kMlperfIds});
    Tensor label(DType::Float32, Shape{rows});
    std::int64_t taken = 0;
    // Where all are asked for, rows of other workers behind the last one of this are counted, too.
    for (const MlperfRow* row = nullptr; taken < most && (row = read()) != nullptr;) {
      const std::int64_t number = seen_++;
      if (options_.read.progress && seen_ % kBlockRows == 0) options_.read.progress(seen_);
      if (number % options_.read.world != options_.read.rank) continue;
      if (is_bad(*row)) {
        count_bad(problem_of(*row, has_labels_));
        if (!options_.read.keep_bad_records) continue;
        table->bad_rows.push_back(taken);
        row = &kNoRow;
      }
      label.data<float>()[static_cast<std::size_t>(taken)] =
          has_labels_ ? static_cast<float>(row->label) : 0.0F;
      std::copy_n(row->dense, kMlperfDense, dense.data<float>().data() + taken * kMlperfDense);
      take_ids(*row, sparse.data<std::int32_t>().data() + taken * kMlperfIds);
      ++taken;
    }
    table->rows = taken;
    table->rows_of_all = seen_;
    table->skipped = bad_;
    table->columns.push_back({"dense", first(dense, taken)});
    table->columns.push_back({"sparse", first(sparse, taken), 1.0F, fields()});
    table->columns.push_back({"label", first(label, taken)});
    return table;
  }

 private:
  static constexpr std::int64_t kBlockRows = 1024;

  /// Blocks of a stream, which are known, are read ahead of their rows.
  void begin_reads() {
    const std::shared_ptr<FileReads> reads = pieces_.empty() ? nullptr : pieces_.front().reads;
    const bool arrays =
        std::ranges::any_of(pieces_, [](const FilePiece& piece) { return is_mlperf_array(piece.file); });
    if (!reads || arrays) {
      reader_ = nullptr;
      return;
    }
    if (!reader_ || reads != reads_) reader_ = reads->reader();
    reads_ = reads;
    std::vector<FileExtent> extents;
    for (const FilePiece& piece : pieces_) {
      const RowsOfFile part = open(piece);
      extents.push_back({piece.file, static_cast<std::uint64_t>(part.first * kMlperfRowBytes),
                         static_cast<std::uint64_t>(part.end * kMlperfRowBytes)});
    }
    reader_->begin(std::move(extents));
  }

  static constexpr MlperfRow kNoRow{};

  /// The same as problem_of(), at the speed of memory.
  bool is_bad(const MlperfRow& row) const {
    unsigned bad = has_labels_ && static_cast<unsigned>(row.label) > 1U ? 1U : 0U;
    for (const float value : row.dense) bad |= std::isfinite(value) ? 0U : 1U;
    for (std::size_t i = 0; i < kMlperfIds; ++i)
      bad |= static_cast<std::uint32_t>(row.ids[i]) >= limits_[i] ? 1U : 0U;
    return bad != 0;
  }

  void take_ids(const MlperfRow& row, std::int32_t* to) const {
    std::copy_n(row.ids, kMlperfIds, to);
    for (const Cut& cut : cuts_) cut.apply(to);
  }

  /// Arrays stay open, as several files and a directory belong to them; of rows the size is asked anew.
  std::shared_ptr<MlperfFile> open_file(const std::filesystem::path& path) {
    if (!is_mlperf_array(path)) return open_mlperf_file(path);
    if (!arrays_ || arrays_path_ != path) {
      arrays_ = open_mlperf_file(path);
      arrays_path_ = path;
    }
    return arrays_;
  }

  RowsOfFile open(const FilePiece& piece) {
    RowsOfFile part{piece.file, open_file(piece.file)};
    const std::int64_t rows = part.file->rows();
    std::int64_t end = rows;
    if (!piece.is_whole()) {
      part.first = static_cast<std::int64_t>(piece.begin) / kMlperfRowBytes;
      end = static_cast<std::int64_t>(piece.end) / kMlperfRowBytes;
      if (end > rows)
        throw DataLoss(fmt::format("{}: has {} rows, had {} and more when its blocks were found",
                                   piece.file.string(), rows, end));
    } else {
      part.file->advise_sequential();
    }
    part.first = std::min(part.first + piece.skip, end);
    part.end = piece.take < end - part.first ? part.first + piece.take : end;
    return part;
  }

  /// Of this worker's rows: there are no more than these.
  std::int64_t most_left() {
    if (unread_ < 0) {
      unread_ = 0;
      for (const FilePiece& piece : pieces_) {
        const RowsOfFile part = open(piece);
        unread_ += part.end - part.first;
      }
    }
    return (unread_ + options_.read.world - 1) / options_.read.world;
  }

  /// The next row; null at the end. It is good until the next call.
  const MlperfRow* read() {
    while (at_ == block_.size()) {
      if (part_.first == part_.end) {
        if (opened_ == pieces_.size()) return nullptr;
        part_ = open(pieces_[opened_++]);
        continue;
      }
      const auto rows = static_cast<std::size_t>(std::min(kBlockRows, part_.end - part_.first));
      block_.resize(rows);
      if (reader_)
        reader_->read(std::as_writable_bytes(std::span(block_)));
      else
        part_.file->read(part_.first, block_);
      block_begins_ = part_.first;
      part_.first += static_cast<std::int64_t>(rows);
      at_ = 0;
    }
    --unread_;
    return &block_[at_++];
  }

  void count_bad(const std::string& problem) {
    if (++bad_ <= options_.read.max_bad_records) return;
    throw DataLoss(fmt::format("{}: row {}: {}", part_.path.string(),
                               block_begins_ + static_cast<std::int64_t>(at_) - 1, problem));
  }

  static Tensor first(const Tensor& all, std::int64_t rows) {
    if (all.shape()[0] == rows) return all;
    Shape shape = all.shape();
    shape.set_dim(0, rows);
    Tensor part(all.dtype(), shape);
    std::memcpy(part.raw(), all.raw(), part.bytes());
    return part;
  }

  std::vector<TableField> fields() const {
    std::vector<TableField> all;
    for (int c = 0; c < kMlperfColumns; ++c)
      all.push_back({.name = "c" + std::to_string(c),
                     .length = kMlperfHots[static_cast<std::size_t>(c)],
                     .ids = mlperf_rows(c, options_.max_rows),
                     .filled = false});
    return all;
  }

  std::vector<FilePiece> pieces_;
  const MlperfOptions options_;
  const std::vector<Cut> cuts_;
  const std::array<std::uint32_t, kMlperfIds> limits_;
  bool has_labels_ = true;
  std::shared_ptr<MlperfFile> arrays_;  // that were read last
  std::filesystem::path arrays_path_;
  std::shared_ptr<FileReads> reads_;      // of the reader; destroyed behind it
  std::unique_ptr<ExtentReader> reader_;  // of all pieces; null: their files are read
  std::size_t opened_ = 0;                // pieces
  RowsOfFile part_;                       // of the piece that was opened last, what is not in a block yet
  std::vector<MlperfRow> block_;
  std::size_t at_ = 0;             // in the block
  std::int64_t block_begins_ = 0;  // row of the file
  std::int64_t unread_ = -1;       // rows of all pieces; -1: not counted yet
  std::int64_t seen_ = 0, bad_ = 0;
};

}  // namespace

std::vector<IndexedFile> mlperf_dlrm_indexes(const std::vector<std::filesystem::path>& files,
                                             std::uint64_t block_bytes) {
  const std::int64_t most =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(block_bytes) / kMlperfRowBytes);
  std::vector<IndexedFile> indexes;
  for (const std::filesystem::path& file : one_of_each_stem(files)) {
    IndexedFile& index = indexes.emplace_back();
    index.file = file;
    index.stamp = stamp_of(file);
    const std::int64_t rows = open_mlperf_file(file)->rows();
    for (std::int64_t first = 0; first < rows; first += most) {
      const std::int64_t end = std::min(first + most, rows);
      index.blocks.push_back({.begin = static_cast<std::uint64_t>(first * kMlperfRowBytes),
                              .end = static_cast<std::uint64_t>(end * kMlperfRowBytes),
                              .lines_before = first,
                              .rows = end - first});
    }
  }
  return indexes;
}

std::int64_t mlperf_dlrm_bytes(const std::vector<std::filesystem::path>& files) {
  std::int64_t rows = 0;
  for (const std::filesystem::path& file : one_of_each_stem(files)) rows += open_mlperf_file(file)->rows();
  return rows * kMlperfRowBytes;
}

std::unique_ptr<RowStream> stream_mlperf_dlrm(const std::vector<std::filesystem::path>& files,
                                              const MlperfOptions& options) {
  return std::make_unique<MlperfRows>(files, options);
}

}  // namespace braid
