#include "engine/input/formats/parquet_files.h"

#include <fmt/format.h>
#include <parquet/exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/parquet_footer.h"
#include "engine/input/formats/parquet_piece.h"
#include "engine/input/formats/parquet_writer.h"

namespace braid {
namespace {

std::string text_of(const ParquetValues& values, std::int64_t row) {
  const auto r = static_cast<std::size_t>(row);
  const std::size_t first = values.ends.empty() ? r : r == 0 ? 0 : values.ends[r - 1];
  const std::size_t last = values.ends.empty() ? r + 1 : values.ends[r];
  if (first == last) return {};
  if (values.kind == ParquetKind::Text) return std::string(values.texts[first]);
  if (values.kind == ParquetKind::Int)
    return values.is_unsigned ? std::to_string(static_cast<std::uint64_t>(values.ints[first]))
                              : std::to_string(values.ints[first]);
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
      const TableColumn* to = layout_->find(output_of(column));
      place.output = static_cast<std::size_t>(to - layout_->columns.data());
      place.offset = places[to->name];
      places[to->name] += column.length;
      if (column.cross.empty()) place.writer.emplace(column);
      for (const std::string& name : column.cross) cross(place, name);
    }
    rows_in_cache_ = rows_in_cache();
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
    std::optional<ParquetColumnWriter> writer;  // none: skipped, or a cross
    std::vector<std::size_t> crossed;           // the columns of a cross
  };
  struct Made {
    std::int64_t rows = 0;
    std::vector<Tensor> outputs;
    std::map<std::size_t, ParquetBags> bags;  // of ragged outputs
    std::map<std::int64_t, std::string> bad;  // by row: what is wrong with it, with its place
    std::vector<std::string> keys, groups;
  };

  /// The output of a column, of ragged weights that of their ids.
  std::string output_of(const ColumnSpec& column) const {
    if (column.ragged && column.kind == ColumnKind::Numeric)
      for (const ColumnSpec& ids : options_.columns)
        if (ids.weights == column.name) return output_name(ids);
    return output_name(column);
  }

  /// Columns of floats are written with gaps between their values, one after another: so many rows stay in
  /// the cache until all columns are there.
  std::int64_t rows_in_cache() const {
    constexpr std::int64_t kBytes = 128 * 1024, kFewest = 512;
    std::int64_t bytes = 1;
    for (const Place& place : places_)
      if (takes_raw_floats(place)) bytes += static_cast<std::int64_t>(sizeof(float));
    return std::clamp(kBytes / bytes, kFewest, kRowsAtOnce);
  }

  void cross(Place& place, const std::string& name) {
    for (std::size_t c = 0; c < places_.size(); ++c) {
      if (options_.columns[c].name != name || !places_[c].writer) continue;
      places_[c].writer->keep_hashes();
      place.crossed.push_back(c);
      return;
    }
  }

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
      shape.set_dim(0, column.ragged() ? 0 : made.rows);
      if (column.ragged()) made.bags[made.outputs.size()];
      const bool is_read =
          std::ranges::find(options_.read.ignored, column.name) == options_.read.ignored.end();
      made.outputs.push_back(is_read ? Tensor(column.data.dtype(), shape)
                                     : Tensor::zeros(column.data.dtype(), shape));
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

  static bool takes_raw_floats(const Place& place) {
    return place.writer && place.writer->takes_raw_floats();
  }

  /// `done` rows of the table are there; the column's next ones are those from `row` on of the file.
  void read_column(Made& made, std::size_t c, std::int64_t done, std::int64_t rows, std::int64_t row_of_file,
                   const std::string& column) {
    Place& place = places_[c];
    const bool is_read = place.writer && piece_->columns().columns[c];
    if (!is_read && place.crossed.empty()) return;
    const auto bad = [&](std::int64_t row, const std::string& problem) {
      made.bad.emplace(done + row, fmt::format("'{}' row {}: {}: {}", piece_->path().string(),
                                               row_of_file + row + 1, column, problem));
    };
    if (const auto bags = made.bags.find(place.output); bags != made.bags.end()) {
      piece_->reader(c).read(rows, values_);
      return place.writer->write_bags(values_, rows, bags->second, bad);
    }
    Tensor& output = made.outputs[place.output];
    const std::int64_t width = output.shape().rank() < 2 ? 1 : output.shape()[1];
    const std::size_t item = dtype_size(output.dtype());
    std::byte* const out = output.raw() + static_cast<std::size_t>(done * width + place.offset) * item;
    if (!place.crossed.empty()) return write_cross(c, rows, reinterpret_cast<std::int64_t*>(out), width);
    if (place.writer->takes_raw_floats()) {
      auto* const floats = reinterpret_cast<float*>(out);
      const auto found = piece_->reader(c).read_floats(rows, floats, width);
      if (found == ParquetColumnReader::Floats::Some) check_floats(floats, rows, width, c, row_of_file);
      if (found != ParquetColumnReader::Floats::None) return;
    }
    piece_->reader(c).read(rows, values_);
    place.writer->write(values_, rows, out, width, bad);
  }

  void write_cross(std::size_t c, std::int64_t rows, std::int64_t* out, std::int64_t stride) const {
    const std::uint64_t first = stable_hash(options_.columns[c].name + "=");
    const auto buckets = static_cast<std::uint64_t>(options_.columns[c].buckets);
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r, out += stride) {
      std::uint64_t hash = first;
      for (const std::size_t of : places_[c].crossed)
        hash = cross_hash(hash, places_[of].writer->hashes()[r]);
      *out = static_cast<std::int64_t>(hash % buckets);
    }
  }

  /// Rows whose weights, of another column, are not as many as their ids.
  void check_weights(Made& made, std::int64_t done, std::int64_t rows) const {
    for (const auto& [output, bags] : made.bags) {
      if (bags.weight_ends.empty()) continue;
      const auto length = [](const std::vector<std::int64_t>& ends, std::int64_t row) {
        const auto r = static_cast<std::size_t>(row);
        return ends[r] - (r == 0 ? 0 : ends[r - 1]);
      };
      for (std::int64_t row = done; row < done + rows; ++row) {
        const std::int64_t ids = length(bags.ends, row), weights = length(bags.weight_ends, row);
        if (ids != weights)
          made.bad.emplace(row, fmt::format("'{}' row {}: column '{}': there are {} weights for {} ids",
                                            piece_->path().string(), piece_->row() + row - done + 1,
                                            layout_->columns[output].fields[0].name, weights, ids));
      }
    }
  }

  /// Rows of one row group; returns how many.
  std::int64_t read_some(Made& made, std::int64_t done, std::int64_t most) {
    std::string column = "its row groups";
    std::int64_t rows = 0;
    try {
      rows = piece_->rows_at_once(std::min(most, kRowsAtOnce));
      const auto read_columns = [&](bool raw, std::int64_t first, std::int64_t count) {
        for (std::size_t c = 0; c < places_.size(); ++c) {
          if (takes_raw_floats(places_[c]) != raw) continue;
          column = "column '" + options_.columns[c].name + "'";
          read_column(made, c, done + first, count, piece_->row() + first, column);
        }
      };
      read_columns(false, 0, rows);
      for (std::int64_t first = 0; first < rows; first += rows_in_cache_)
        read_columns(true, first, std::min(rows_in_cache_, rows - first));
      check_weights(made, done, rows);
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
  void check_floats(float* out, std::int64_t rows, std::int64_t stride, std::size_t c,
                    std::int64_t row_of_file) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      float& value = out[r * stride];
      if (std::isnan(value)) value = static_cast<float>(options_.columns[c].missing);
      if (!std::isfinite(value))
        throw DataLoss(fmt::format("row {} is not a finite number", row_of_file + r + 1));
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
      if (layout_->columns[o].ragged()) {
        table->columns.push_back(bags_of_rows(layout_->columns[o], made.bags[o], kept, blank));
        continue;
      }
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

  /// The bags of the rows `kept`, none of those that are `blank`; both rise.
  static TableColumn bags_of_rows(TableColumn column, const ParquetBags& bags,
                                  const std::vector<std::int64_t>& kept,
                                  const std::vector<std::int64_t>& blank) {
    std::vector<std::int64_t> ids, offsets{0};
    std::vector<float> weights;
    for (const std::int64_t row : kept) {
      const auto r = static_cast<std::size_t>(row);
      const auto part = [r](const std::vector<std::int64_t>& ends, const auto& from, auto& to) {
        to.insert(to.end(), from.begin() + (r == 0 ? 0 : ends[r - 1]), from.begin() + ends[r]);
      };
      if (!std::binary_search(blank.begin(), blank.end(), row)) {
        part(bags.ends, bags.ids, ids);
        if (column.weights.defined())
          part(bags.weight_ends.empty() ? bags.ends : bags.weight_ends, bags.weights, weights);
      }
      offsets.push_back(std::ssize(ids));
    }
    column.data = Tensor::from<std::int64_t>(Shape{std::ssize(ids)}, ids);
    column.offsets = Tensor::from<std::int64_t>(Shape{std::ssize(offsets)}, offsets);
    if (column.weights.defined()) column.weights = Tensor::from<float>(Shape{std::ssize(weights)}, weights);
    return column;
  }

  static ParquetFooters& footers() {
    static ParquetFooters* const all =
        new ParquetFooters;  // for threads that end after the program's statics
    return *all;
  }

  static constexpr std::int64_t kRowsAtOnce = std::int64_t{1} << 16;

  const ParquetOptions options_;
  std::shared_ptr<const Table> layout_;
  std::int64_t rows_in_cache_ = 0;
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
