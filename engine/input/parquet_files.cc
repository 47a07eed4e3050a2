#include "engine/input/parquet_files.h"

#include <fmt/format.h>
#include <parquet/exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "engine/input/line_reader.h"
#include "engine/input/parquet_footer.h"
#include "engine/input/parquet_piece.h"
#include "engine/input/parquet_writer.h"

namespace braid {
namespace {

std::string text_of(const ParquetValues& values, std::int64_t row) {
  const auto r = static_cast<std::size_t>(row);
  const std::size_t first = values.ends.empty() ? r : r == 0 ? 0 : values.ends[r - 1];
  const std::size_t last = values.ends.empty() ? r + 1 : values.ends[r];
  if (first == last) return {};
  if (values.kind == ParquetKind::Text) return std::string(values.texts[first]);
  if (values.kind == ParquetKind::Int) return std::to_string(values.ints[first]);
  return fmt::format("{}", values.floats[first]);
}

class ParquetStream : public RowStream {
 public:
  ParquetStream(const std::vector<std::filesystem::path>& files, ParquetOptions options)
      : options_(std::move(options)), book_(options_.read), pieces_(whole_files(files)) {
    TableBuilder layout(options_.columns);
    layout_ = layout.finish(0);
    std::map<std::string, std::int64_t> places;
    for (const ColumnSpec& column : options_.columns) {
      Place& place = places_.emplace_back();
      if (column.kind == ColumnKind::Skip) continue;
      const TableColumn* to = layout_->find(output_name(column));
      place.output = static_cast<std::size_t>(to - layout_->columns.data());
      place.offset = places[to->name];
      places[to->name] += column.length;
      place.writer.emplace(column);
    }
    for (const Place& place : places_)
      dictionaries_.push_back(place.writer && place.writer->wants_dictionary());
  }

  void begin(std::vector<FilePiece> pieces) override {
    pieces_ = std::move(pieces);
    opened_ = 0;
    piece_.reset();
    counted_.reset();
  }

  std::shared_ptr<Table> next(std::int64_t most) override {
    Made made;
    made.rows = most == 0 ? 0 : std::min(most, rows_left());
    allocate(made);
    std::int64_t done = 0;
    while (done < made.rows && (piece_ || open_next())) {
      done += read_some(made, done, made.rows - done);
      if (piece_->left() == 0) piece_.reset();
    }
    if (done < made.rows)
      throw DataLoss(fmt::format("Parquet: {} rows of {} that the footers say", done, made.rows));
    if (counted_) *counted_ -= done;
    return finish(made);
  }

 private:
  struct Place {
    std::size_t output = 0;
    std::int64_t offset = 0;                    // in a row of it
    std::optional<ParquetColumnWriter> writer;  // none: skipped
  };
  struct Made {
    std::int64_t rows = 0;
    std::vector<Tensor> outputs;
    std::map<std::int64_t, std::string> bad;  // by row: what is wrong with it, with its place
    std::vector<std::string> keys, groups;
  };

  /// Of the pieces that are not read yet.
  std::int64_t rows_left() {
    if (counted_) return *counted_;
    std::int64_t rows = 0;
    for (const FilePiece& piece : pieces_) {
      const std::int64_t all =
          std::min<std::int64_t>(static_cast<std::int64_t>(std::min<std::uint64_t>(piece.end, INT64_MAX)),
                                 footers().of(piece.file)->meta->num_rows());
      rows +=
          std::clamp<std::int64_t>(all - static_cast<std::int64_t>(piece.begin) - piece.skip, 0, piece.take);
    }
    counted_ = rows;
    return rows;
  }

  void allocate(Made& made) const {
    for (const TableColumn& column : layout_->columns) {
      Shape shape = column.data.shape();
      shape.set_dim(0, made.rows);
      made.outputs.push_back(Tensor::zeros(column.data.dtype(), shape));
    }
  }

  bool open_next() {
    while (opened_ < pieces_.size()) {
      const FilePiece& piece = pieces_[opened_++];
      const std::shared_ptr<const ParquetFooter> footer = footers().of(piece.file);
      if (piece.crc && *piece.crc != footer->id())
        throw DataLoss("'" + piece.file.string() + "': was changed since its blocks were found");
      const std::int64_t first = static_cast<std::int64_t>(piece.begin) + piece.skip;
      const std::int64_t end = std::min<std::int64_t>(
          static_cast<std::int64_t>(std::min<std::uint64_t>(piece.end, INT64_MAX)), footer->meta->num_rows());
      const std::int64_t rows = std::min(end - first, piece.take);
      if (rows <= 0) continue;
      piece_.emplace(footer, columns_in(*footer, options_), dictionaries_, first, first + rows);
      return true;
    }
    return false;
  }

  /// Rows of one row group; returns how many.
  std::int64_t read_some(Made& made, std::int64_t done, std::int64_t most) {
    std::string column = "its row groups";
    std::int64_t rows = 0;
    try {
      rows = piece_->rows_at_once(std::min(most, kRowsAtOnce));
      for (std::size_t c = 0; c < places_.size(); ++c) {
        Place& place = places_[c];
        if (!place.writer || !piece_->columns().columns[c]) continue;
        column = "column '" + options_.columns[c].name + "'";
        Tensor& output = made.outputs[place.output];
        const std::int64_t width = output.shape().rank() < 2 ? 1 : output.shape()[1];
        const std::size_t item = dtype_size(output.dtype());
        std::byte* const out = output.raw() + static_cast<std::size_t>(done * width + place.offset) * item;
        if (place.writer->takes_raw_floats() &&
            piece_->reader(c).read_floats(rows, reinterpret_cast<float*>(out), width)) {
          check_floats(reinterpret_cast<float*>(out), rows, width, c);
          continue;
        }
        piece_->reader(c).read(rows, values_);
        place.writer->write(values_, rows, out, width, [&](std::int64_t row, const std::string& problem) {
          made.bad.emplace(done + row, fmt::format("'{}' row {}: {}: {}", piece_->path().string(),
                                                   piece_->row() + row + 1, column, problem));
        });
      }
      if (book_.has_keys()) {
        piece_->key().read(rows, values_);
        for (std::int64_t r = 0; r < rows; ++r) made.keys.push_back(text_of(values_, r));
      }
      if (book_.has_groups()) {
        piece_->group().read(rows, values_);
        for (std::int64_t r = 0; r < rows; ++r) made.groups.push_back(text_of(values_, r));
      }
    } catch (const parquet::ParquetException& error) {
      throw DataLoss(fmt::format("'{}' row group {}, {}: {}", piece_->path().string(), piece_->row_group(),
                                 column, error.what()));
    } catch (const DataLoss& error) {
      throw DataLoss(fmt::format("'{}' row group {}, {}: {}", piece_->path().string(), piece_->row_group(),
                                 column, error.message()));
    }
    piece_->advance(rows);
    return rows;
  }

  /// NaN is missing, as in columns with nulls; an infinity is a damaged number.
  void check_floats(float* out, std::int64_t rows, std::int64_t stride, std::size_t c) {
    float sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) sum += out[r * stride] * 0.0F;
    if (sum == 0) return;
    for (std::int64_t r = 0; r < rows; ++r) {
      float& value = out[r * stride];
      if (std::isnan(value)) value = static_cast<float>(options_.columns[c].missing);
      if (!std::isfinite(value))
        throw DataLoss(fmt::format("row {} is not a finite number", piece_->row() + r + 1));
    }
  }

  std::shared_ptr<Table> finish(Made& made) {
    std::vector<std::int64_t> kept;
    kept.reserve(static_cast<std::size_t>(made.rows));
    std::vector<std::int64_t> blank;
    for (std::int64_t r = 0; r < made.rows; ++r) {
      if (!book_.takes_next()) continue;
      const auto bad = made.bad.empty() ? made.bad.end() : made.bad.find(r);
      if (bad != made.bad.end()) {
        book_.bad().add(bad->second);
        if (!options_.read.keep_bad_records) continue;
        blank.push_back(r);
        book_.add_bad(std::ssize(kept));
        kept.push_back(r);
        continue;
      }
      kept.push_back(r);
      if (book_.has_keys()) book_.add_key(made.keys[static_cast<std::size_t>(r)]);
      if (book_.has_groups()) book_.add_group(made.groups[static_cast<std::size_t>(r)]);
    }
    auto table = std::make_shared<Table>();
    table->rows = std::ssize(kept);
    table->skipped = book_.bad().count();
    for (std::size_t o = 0; o < made.outputs.size(); ++o) {
      Tensor data = std::move(made.outputs[o]);
      const std::size_t row = made.rows == 0 ? 0 : data.bytes() / static_cast<std::size_t>(made.rows);
      for (const std::int64_t r : blank) std::memset(data.raw() + static_cast<std::size_t>(r) * row, 0, row);
      if (table->rows != made.rows) {
        Shape shape = data.shape();
        shape.set_dim(0, table->rows);
        Tensor fewer(data.dtype(), shape);
        for (std::size_t r = 0; r < kept.size(); ++r)
          std::memcpy(fewer.raw() + r * row, data.raw() + static_cast<std::size_t>(kept[r]) * row, row);
        data = std::move(fewer);
      }
      table->columns.push_back({layout_->columns[o].name, std::move(data), 1.0F, layout_->columns[o].fields});
    }
    return book_.finish(std::move(table));
  }

  static ParquetFooters& footers() {
    static ParquetFooters* const all =
        new ParquetFooters;  // for threads that end after the program's statics
    return *all;
  }

  static constexpr std::int64_t kRowsAtOnce = std::int64_t{1} << 16;

  const ParquetOptions options_;
  std::shared_ptr<const Table> layout_;
  std::vector<Place> places_;  // of the schema's columns
  std::vector<bool> dictionaries_;
  RowBook book_;
  std::vector<FilePiece> pieces_;
  std::size_t opened_ = 0;
  std::optional<ParquetPieceReader> piece_;
  std::optional<std::int64_t> counted_;  // rows that are left
  ParquetValues values_;
};

}  // namespace

bool has_parquet() { return true; }

std::unique_ptr<RowStream> stream_parquet(std::vector<std::filesystem::path> files, ParquetOptions options) {
  return std::make_unique<ParquetStream>(std::move(files), std::move(options));
}

}  // namespace braid
