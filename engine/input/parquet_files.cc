#include "engine/input/parquet_files.h"

#include <arrow/util/config.h>
#include <fmt/format.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/init.h"
#include "engine/input/arrow_file.h"
#include "engine/input/line_reader.h"
#include "engine/input/parquet_column.h"

namespace braid {
namespace {

constexpr std::int64_t kColumnBuffer = std::int64_t{256} << 10;

/// What stands in a footer; Arrow's errors with the file's name.
struct Footer {
  std::shared_ptr<DataFile> file;
  FileStamp stamp;
  std::shared_ptr<parquet::FileMetaData> meta;

  std::unique_ptr<parquet::ParquetFileReader> open() const {
    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();
    properties.set_buffer_size(kColumnBuffer);
    properties.set_page_checksum_verification(true);
    return parquet::ParquetFileReader::Open(as_arrow_file(file), properties, meta);
  }
};

Footer read_footer(const std::filesystem::path& path) {
  Footer footer{open_data_file(path), stamp_of(path), nullptr};
  try {
    footer.meta = parquet::ReadMetaData(as_arrow_file(footer.file));
  } catch (const parquet::ParquetException& error) {
    throw DataLoss("'" + path.string() + "': not a Parquet file, or a damaged one: " + error.what());
  }
  return footer;
}

/// Of what a footer says of the rows: another file has another one.
std::uint32_t id_of(const Footer& footer) {
  std::string text = fmt::format("{} {}", footer.stamp.size, footer.meta->num_rows());
  for (int g = 0; g < footer.meta->num_row_groups(); ++g) {
    const auto group = footer.meta->RowGroup(g);
    text += fmt::format(" {} {} {}", group->num_rows(), group->total_byte_size(), group->file_offset());
  }
  return crc32c(std::as_bytes(std::span(text)));
}

/// The footers that were read last: a file of many row groups is opened for each of them.
class Footers {
 public:
  std::shared_ptr<const Footer> of(const std::filesystem::path& path) {
    std::lock_guard lock(mu_);
    const FileStamp stamp = stamp_of(path);
    std::erase_if(kept_, [&](const auto& each) { return each.first == path && each.second->stamp != stamp; });
    for (auto& [name, footer] : kept_)
      if (name == path) return footer;
    auto footer = std::make_shared<const Footer>(read_footer(path));
    constexpr std::size_t kMost = 32;
    if (kept_.size() >= kMost) kept_.erase(kept_.begin());
    kept_.emplace_back(path, footer);
    return footer;
  }

 private:
  std::mutex mu_;
  std::vector<std::pair<std::filesystem::path, std::shared_ptr<const Footer>>> kept_;  // guarded by mu_
};

/// A column of the schema in a file.
struct FileColumn {
  std::optional<ParquetLeaf> leaf;  // absent where it is ignored or skipped
};

struct FileColumns {
  std::vector<FileColumn> columns;  // of the schema's
  std::optional<ParquetLeaf> key, group;
};

std::optional<ParquetLeaf> leaf_of(const Footer& footer, const std::string& name) {
  try {
    return find_parquet_leaf(*footer.meta->schema(), name);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("'" + footer.file->path().string() + "' column '" + name + "': " + error.message());
  }
}

ParquetLeaf needed_leaf(const Footer& footer, const std::string& name) {
  if (const auto leaf = leaf_of(footer, name)) return *leaf;
  refuse_column(name, footer.file->path(), parquet_column_names(*footer.meta->schema()));
}

bool is_ignored(const ReadOptions& read, const ColumnSpec& column) {
  return std::find(read.ignored.begin(), read.ignored.end(), output_name(column)) != read.ignored.end();
}

bool takes_floats(const ColumnSpec& column) {
  return column.kind == ColumnKind::Numeric || column.kind == ColumnKind::Label ||
         column.kind == ColumnKind::Weight;
}

FileColumns columns_in(const Footer& footer, const ParquetOptions& options) {
  FileColumns columns;
  for (const ColumnSpec& column : options.columns) {
    FileColumn& to = columns.columns.emplace_back();
    if (column.kind == ColumnKind::Skip || is_ignored(options.read, column)) continue;
    to.leaf = needed_leaf(footer, column.name);
    if (to.leaf->kind == ParquetKind::Float && !takes_floats(column))
      throw InvalidArgument("'" + footer.file->path().string() + "' column '" + column.name +
                            "': has floats, an id needs integers or texts");
    if (to.leaf->is_list && column.length == 1)
      throw InvalidArgument("'" + footer.file->path().string() + "' column '" + column.name +
                            "': is a list, the schema's length is 1");
  }
  if (!options.read.key_column.empty()) columns.key = needed_leaf(footer, options.read.key_column);
  if (!options.read.group_column.empty()) columns.group = needed_leaf(footer, options.read.group_column);
  return columns;
}

/// A column of the schema into its place in a table. `one` makes single columns, by the rules of all formats.
class ColumnWriter {
 public:
  explicit ColumnWriter(const ColumnSpec& spec) : spec_(spec), one_({spec}) {
    is_float_ = takes_floats(spec);
    // What the rules come to where nothing has to be looked at value by value.
    plain_floats_ = is_float_ && spec.length == 1 && spec.positive.empty();
    identity_ = plain_floats_ &&
                !(spec.kind == ColumnKind::Numeric && (spec.log1p || spec.shift != 0 || spec.scale != 1));
    plain_ints_ = spec.kind == ColumnKind::Class && spec.length == 1 && spec.vocabulary.empty();
  }
  bool is_float() const { return is_float_; }
  bool wants_dictionary() const { return !is_float_ && !plain_ints_; }
  bool takes_raw_floats() const { return identity_ && spec_.kind == ColumnKind::Numeric; }

  /// `bad(row, problem)` for each bad row, which is 0.
  template <class Bad>
  void write(const ParquetValues& values, std::int64_t rows, std::byte* out, std::int64_t stride, Bad bad) {
    if (plain_floats_ && values.kind != ParquetKind::Text)
      write_numbers(values, rows, reinterpret_cast<float*>(out), stride, bad);
    else if (plain_ints_ && values.kind == ParquetKind::Int && !values.by_dictionary && values.ends.empty())
      for (std::int64_t r = 0; r < rows; ++r)
        reinterpret_cast<std::int64_t*>(out)[r * stride] = values.ints[static_cast<std::size_t>(r)];
    else if (values.by_dictionary && spec_.length == 1)
      write_places(values, rows, reinterpret_cast<std::int64_t*>(out), stride, bad);
    else
      write_rows(values, rows, out, stride, bad);
  }

 private:
  static std::pair<std::uint32_t, std::uint32_t> range(const ParquetValues& values, std::int64_t row) {
    if (values.ends.empty()) return {static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row + 1)};
    return {row == 0 ? 0 : values.ends[static_cast<std::size_t>(row - 1)],
            values.ends[static_cast<std::size_t>(row)]};
  }

  double scaled(double value) const {
    if (spec_.kind != ColumnKind::Numeric) return value;
    if (spec_.log1p) value = std::log1p(std::max(value, 0.0));
    return (value - spec_.shift) / spec_.scale;
  }

  template <class Bad>
  void write_numbers(const ParquetValues& values, std::int64_t rows, float* out, std::int64_t stride,
                     Bad bad) {
    const bool numeric = spec_.kind == ColumnKind::Numeric;
    const auto missing = static_cast<float>(scaled(spec_.missing));
    for (std::int64_t r = 0; r < rows; ++r, out += stride) {
      const auto [first, last] = range(values, r);
      if (first == last) {
        *out = numeric ? missing : 0;
        if (!numeric) bad(r, "has no value");
        continue;
      }
      const double value =
          values.kind == ParquetKind::Int ? static_cast<double>(values.ints[first]) : values.floats[first];
      if (std::isnan(value) && numeric) {
        *out = missing;
        continue;
      }
      *out = static_cast<float>(scaled(value));
      if (!std::isfinite(value)) {
        *out = 0;
        bad(r, fmt::format("{} is not a finite number", value));
      } else if (spec_.kind == ColumnKind::Weight && value < 0) {
        *out = 0;
        bad(r, "a weight must not be negative");
      }
    }
  }

  /// Each entry of the dictionary once.
  template <class Bad>
  void write_places(const ParquetValues& values, std::int64_t rows, std::int64_t* out, std::int64_t stride,
                    Bad bad) {
    std::vector<std::string> problems;
    const std::size_t entries = values.kind == ParquetKind::Int ? values.ints.size() : values.texts.size();
    for (std::size_t i = 0; i < entries; ++i) {
      FieldValues value;
      if (values.kind == ParquetKind::Int)
        value.ints = std::span(values.ints).subspan(i, 1);
      else
        value.texts = std::span(values.texts).subspan(i, 1);
      std::string problem = one_.add_values(0, value);
      if (problem.empty()) {
        one_.end_row();
      } else {
        problems.resize(entries);
        problems[i] = std::move(problem);
        one_.blank_row();
      }
    }
    std::string no_value = one_.add_values(0, {});
    if (no_value.empty())
      one_.end_row();
    else
      one_.blank_row();
    const std::shared_ptr<Table> made = one_.finish(0);
    const auto ids = made->columns[0].data.data<std::int64_t>();
    for (std::int64_t r = 0; r < rows; ++r, out += stride) {
      const auto [first, last] = range(values, r);
      if (first == last) {
        *out = ids[entries];
        if (!no_value.empty()) bad(r, no_value);
        continue;
      }
      const auto place = static_cast<std::size_t>(values.places[first]);
      *out = ids[place];
      if (!problems.empty() && !problems[place].empty()) bad(r, problems[place]);
    }
  }

  template <class Bad>
  void write_rows(const ParquetValues& values, std::int64_t rows, std::byte* out, std::int64_t stride,
                  Bad bad) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto [first, last] = range(values, r);
      const std::size_t count = last - first;
      FieldValues value;
      if (values.kind == ParquetKind::Int && values.by_dictionary) {
        gathered_.clear();
        for (std::uint32_t i = first; i < last; ++i)
          gathered_.push_back(values.ints[static_cast<std::size_t>(values.places[i])]);
        value.ints = gathered_;
      } else if (values.kind == ParquetKind::Int) {
        value.ints = std::span(values.ints).subspan(first, count);
      } else if (values.kind == ParquetKind::Text) {
        value.texts = std::span(values.texts).subspan(first, count);
      } else {
        floats_.assign(values.floats.begin() + first, values.floats.begin() + last);
        value.floats = floats_;
      }
      const std::string problem = one_.add_values(0, value);
      if (problem.empty()) {
        one_.end_row();
      } else {
        one_.blank_row();
        bad(r, problem);
      }
    }
    const std::shared_ptr<Table> made = one_.finish(0);
    const std::size_t width = static_cast<std::size_t>(spec_.length), item = is_float_ ? 4 : 8;
    const std::byte* from = made->columns[0].data.raw();
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(out + static_cast<std::size_t>(r * stride) * item,
                  from + static_cast<std::size_t>(r) * width * item, width * item);
  }

  const ColumnSpec spec_;
  TableBuilder one_;
  bool is_float_ = false, plain_floats_ = false, identity_ = false, plain_ints_ = false;
  std::vector<std::int64_t> gathered_;
  std::vector<float> floats_;
};

/// The rows of one piece of a file, from front to back, over its row groups.
class PieceReader {
 public:
  PieceReader(std::shared_ptr<const Footer> footer, FileColumns columns, std::vector<bool> dictionaries,
              std::int64_t first, std::int64_t end)
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
  const FileColumns& columns() const { return columns_; }
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
      const auto& leaf = columns_.columns[c].leaf;
      readers_.push_back(leaf ? ParquetColumnReader::open(*rows_, *leaf, skip, dictionaries_[c]) : nullptr);
    }
    key_ = columns_.key ? ParquetColumnReader::open(*rows_, *columns_.key, skip, false) : nullptr;
    group_reader_ =
        columns_.group ? ParquetColumnReader::open(*rows_, *columns_.group, skip, false) : nullptr;
    open_ = true;
  }

  const std::shared_ptr<const Footer> footer_;
  const FileColumns columns_;
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
    std::int64_t offset = 0;             // in a row of it
    std::optional<ColumnWriter> writer;  // none: skipped
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
      const std::shared_ptr<const Footer> footer = footers().of(piece.file);
      if (piece.crc && *piece.crc != id_of(*footer))
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
        if (!place.writer || !piece_->columns().columns[c].leaf) continue;
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

  static Footers& footers() {
    static Footers* const all = new Footers;  // for threads that end after the program's statics
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
  std::optional<PieceReader> piece_;
  std::optional<std::int64_t> counted_;  // rows that are left
  ParquetValues values_;
};

}  // namespace

bool has_parquet() { return true; }

std::unique_ptr<RowStream> stream_parquet(std::vector<std::filesystem::path> files, ParquetOptions options) {
  return std::make_unique<ParquetStream>(std::move(files), std::move(options));
}

std::vector<IndexedFile> parquet_indexes(const std::vector<std::filesystem::path>& files,
                                         const ParquetOptions& options, std::uint64_t block_bytes) {
  std::vector<IndexedFile> indexes;
  for (const std::filesystem::path& path : files) {
    const Footer footer = read_footer(path);
    const FileColumns columns = columns_in(footer, options);
    IndexedFile& index = indexes.emplace_back();
    index.file = path;
    index.stamp = footer.stamp;
    index.unit = "rows";
    std::int64_t first = 0;
    double open_bytes = 0;  // of the block that grows
    IndexedBlock open;
    const auto close = [&] {
      if (open.rows > 0) index.blocks.push_back(open);
      open = {static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(first), first, 0, 0};
      open_bytes = 0;
    };
    for (int g = 0; g < footer.meta->num_row_groups(); ++g) {
      const auto group = footer.meta->RowGroup(g);
      const std::int64_t rows = group->num_rows();
      double bytes = 0;
      for (const FileColumn& column : columns.columns)
        if (column.leaf)
          bytes += static_cast<double>(group->ColumnChunk(column.leaf->column)->total_uncompressed_size());
      // As many bytes as its rows take, where a dictionary or runs make the file's fewer.
      bytes = std::max(bytes, static_cast<double>(rows) * 4 * static_cast<double>(columns.columns.size()));
      const auto target = static_cast<double>(block_bytes);
      if (open.rows == 0 || open_bytes + bytes > 1.5 * target) close();
      if (bytes > 2 * target) {
        close();
        const auto cuts = static_cast<std::int64_t>(std::min(bytes / target, static_cast<double>(rows)));
        for (std::int64_t k = 0; k < cuts; ++k) {
          const std::int64_t from = first + rows * k / cuts, to = first + rows * (k + 1) / cuts;
          index.blocks.push_back(
              {static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), from, to - from, 0});
        }
        first += rows;
        close();
        continue;
      }
      open.rows += rows;
      open.end = open.begin + static_cast<std::uint64_t>(open.rows);
      open_bytes += bytes;
      first += rows;
    }
    close();
    const std::uint32_t id = id_of(footer);
    for (IndexedBlock& block : index.blocks) block.crc = id;
  }
  return indexes;
}

}  // namespace braid
