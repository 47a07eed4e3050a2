#include "engine/input/mlperf_dlrm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/files.h"

namespace braid {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are read as they are");

/// A row as it lies in a file.
struct Row {
  std::int32_t label;
  float dense[kMlperfDense];
  std::int32_t ids[kMlperfIds];
};
static_assert(sizeof(Row) == kMlperfRowBytes);

/// What is wrong with the row, or an empty text.
std::string problem_of(const Row& row) {
  if (row.label != 0 && row.label != 1) return fmt::format("label {} is not 0 or 1", row.label);
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

/// The modulus of each id; 0: it stays.
std::array<std::int32_t, kMlperfIds> cuts(std::int64_t max_rows) {
  std::array<std::int32_t, kMlperfIds> all{};
  std::size_t at = 0;
  for (int c = 0; c < kMlperfColumns; ++c) {
    const std::int64_t rows = mlperf_rows(c, max_rows);
    const bool is_cut = rows != kMlperfRows[static_cast<std::size_t>(c)];
    for (std::int64_t k = 0; k < kMlperfHots[static_cast<std::size_t>(c)]; ++k)
      all[at++] = is_cut ? static_cast<std::int32_t>(rows) : 0;
  }
  return all;
}

class MlperfRows : public RowStream {
 public:
  MlperfRows(std::vector<std::filesystem::path> files, const MlperfOptions& options)
      : files_(std::move(files)), options_(options), cuts_(cuts(options.max_rows)) {
    if (!options.read.key_column.empty() || !options.read.group_column.empty())
      throw InvalidArgument("the rows of MLPERF_DLRM have no columns for keys or groups");
  }

  std::shared_ptr<Table> next(std::int64_t most) override {
    const std::int64_t rows = std::min(most, left());
    auto table = std::make_shared<Table>();
    Tensor dense(DType::Float32, Shape{rows, kMlperfDense});
    Tensor sparse(DType::Int32, Shape{rows, kMlperfIds});
    Tensor label(DType::Float32, Shape{rows});
    std::int64_t taken = 0;
    Row row;
    while (taken < rows && read(row)) {
      const std::int64_t number = seen_++;
      if (options_.read.progress && seen_ % kBlockRows == 0) options_.read.progress(seen_);
      if (number % options_.read.world != options_.read.rank) continue;
      std::string problem = problem_of(row);
      if (!problem.empty() && !options_.read.keep_bad_records) {
        count_bad(problem);
        ++table->skipped;
        continue;
      }
      if (!problem.empty()) {
        count_bad(problem);
        table->bad_rows.push_back(taken);
        row = Row{};
      }
      label.data<float>()[static_cast<std::size_t>(taken)] = static_cast<float>(row.label);
      std::copy_n(row.dense, kMlperfDense, dense.data<float>().data() + taken * kMlperfDense);
      std::int32_t* ids = sparse.data<std::int32_t>().data() + taken * kMlperfIds;
      for (std::size_t i = 0; i < kMlperfIds; ++i)
        ids[i] = cuts_[i] == 0 ? row.ids[i] : row.ids[i] % cuts_[i];
      ++taken;
    }
    table->rows = taken;
    table->rows_of_all = seen_;
    table->columns.push_back({"dense", first(dense, taken)});
    table->columns.push_back({"sparse", first(sparse, taken), 1.0F, fields()});
    table->columns.push_back({"label", first(label, taken)});
    return table;
  }

 private:
  static constexpr std::int64_t kBlockRows = 4096;

  /// Rows that the files still have at most for this worker, which a whole table is made for at once.
  std::int64_t left() {
    if (rows_left_ < 0) {
      rows_left_ = 0;
      for (const auto& file : files_) {
        const auto bytes = static_cast<std::int64_t>(File::open(file).size());
        if (bytes % kMlperfRowBytes != 0)
          throw DataLoss(fmt::format("{}: {} bytes are no whole number of rows of {} bytes", file.string(),
                                     bytes, kMlperfRowBytes));
        rows_left_ += bytes / kMlperfRowBytes;
      }
      all_rows_ = rows_left_;
    }
    return (all_rows_ - seen_ + options_.read.world - 1) / options_.read.world;
  }

  bool read(Row& row) {
    while (at_ == block_.size()) {
      if (file_ < 0 || next_ >= file_rows_) {
        if (++file_ >= static_cast<std::int64_t>(files_.size())) {
          --file_;
          return false;
        }
        open_.clear();
        open_.push_back(File::open(files_[static_cast<std::size_t>(file_)]));
        open_[0].advise_sequential();
        file_rows_ = static_cast<std::int64_t>(open_[0].size()) / kMlperfRowBytes;
        next_ = 0;
        continue;
      }
      block_.resize(static_cast<std::size_t>(std::min(kBlockRows, file_rows_ - next_)));
      open_[0].read_at(static_cast<std::uint64_t>(next_ * kMlperfRowBytes),
                       std::as_writable_bytes(std::span(block_)));
      block_begins_ = next_;
      next_ += static_cast<std::int64_t>(block_.size());
      at_ = 0;
    }
    row = block_[at_++];
    return true;
  }

  void count_bad(const std::string& problem) {
    if (++bad_ <= options_.read.max_bad_records || options_.read.keep_bad_records) return;
    throw DataLoss(fmt::format("{}: row {}: {}", files_[static_cast<std::size_t>(file_)].string(),
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

  const std::vector<std::filesystem::path> files_;
  const MlperfOptions options_;
  const std::array<std::int32_t, kMlperfIds> cuts_;
  std::vector<File> open_;  // the present file, or none
  std::vector<Row> block_;
  std::size_t at_ = 0;             // in the block
  std::int64_t file_ = -1;         // its number
  std::int64_t file_rows_ = 0;     // that it has
  std::int64_t next_ = 0;          // row of the file
  std::int64_t block_begins_ = 0;  // row of the file
  std::int64_t seen_ = 0, bad_ = 0;
  std::int64_t rows_left_ = -1, all_rows_ = 0;
};

}  // namespace

std::unique_ptr<RowStream> stream_mlperf_dlrm(std::vector<std::filesystem::path> files,
                                              const MlperfOptions& options) {
  return std::make_unique<MlperfRows>(std::move(files), options);
}

}  // namespace braid
