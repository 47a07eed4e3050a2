#include "engine/input/formats/parquet_records.h"

#include <arrow/io/file.h>
#include <fmt/format.h>
#include <parquet/column_writer.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/file_writer.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/files/arrow_file.h"
#include "engine/input/formats/parquet_column.h"

namespace braid {
namespace {

class ParquetRecords : public RecordFile {
 public:
  explicit ParquetRecords(const std::filesystem::path& file) : file_(file) {
    try {
      parquet::ReaderProperties properties = parquet::default_reader_properties();
      properties.enable_buffered_stream();
      reader_ = parquet::ParquetFileReader::Open(as_arrow_file(open_data_file(file)), properties);
    } catch (const parquet::ParquetException& error) {
      throw DataLoss("'" + file.string() + "': not a Parquet file, or a damaged one: " + error.what());
    }
    names_ = parquet_column_names(*reader_->metadata()->schema());
    for (const std::string& name : names_) {
      try {
        leaves_.push_back(*find_parquet_leaf(*reader_->metadata()->schema(), name));
        are_dates_.push_back(is_parquet_date(*reader_->metadata()->schema(), leaves_.back()));
      } catch (const InvalidArgument& error) {
        throw InvalidArgument("'" + file.string() + "' column '" + name + "': " + error.message());
      }
    }
    values_.resize(names_.size());
    made_texts_.resize(names_.size());
  }

  bool next() override {
    try {
      while (row_ == rows_)
        if (!read_more()) return false;
    } catch (const parquet::ParquetException& error) {
      throw DataLoss("'" + file_.string() + "': row group " + std::to_string(group_ - 1) + ": " +
                     error.what());
    }
    record_.clear();
    for (std::size_t c = 0; c < names_.size(); ++c) add(c);
    ++row_;
    return true;
  }
  const FeatureSet& record() const override { return record_; }
  FileFormat format() const override { return FileFormat::Parquet; }
  Compression compression() const override { return Compression::None; }
  std::vector<std::string> column_names() const override { return names_; }

 private:
  bool read_more() {
    constexpr std::int64_t kRows = 1024;
    while (left_ == 0) {
      if (group_ == reader_->metadata()->num_row_groups()) return false;
      rows_of_group_ = reader_->RowGroup(group_++);
      left_ = rows_of_group_->metadata()->num_rows();
      columns_.clear();
      for (const ParquetLeaf& leaf : leaves_)
        columns_.push_back(ParquetColumnReader::open(*rows_of_group_, leaf, 0, false));
    }
    rows_ = std::min(left_, kRows);
    for (std::size_t c = 0; c < columns_.size(); ++c) columns_[c]->read(rows_, values_[c]);
    left_ -= rows_;
    row_ = 0;
    return true;
  }

  void add(std::size_t c) {
    const ParquetValues& values = values_[c];
    const auto row = static_cast<std::size_t>(row_);
    const std::size_t first = values.ends.empty() ? row : row == 0 ? 0 : values.ends[row - 1];
    const std::size_t count = (values.ends.empty() ? row + 1 : values.ends[row]) - first;
    if (count == 0) return;
    if (are_dates_[c]) {
      add_dates(c, std::span<const std::int64_t>(values.ints).subspan(first, count));
    } else if (values.kind == ParquetKind::Int && values.is_unsigned && has_large(c, values, first, count)) {
      record_.add(names_[c], std::span<const std::string_view>(texts_));
    } else if (values.kind == ParquetKind::Int) {
      record_.add(names_[c], std::span<const std::int64_t>(values.ints).subspan(first, count));
    } else if (values.kind == ParquetKind::Float) {
      floats_.assign(values.floats.begin() + static_cast<std::ptrdiff_t>(first),
                     values.floats.begin() + static_cast<std::ptrdiff_t>(first + count));
      record_.add(names_[c], std::span<const float>(floats_));
    } else {
      record_.add(names_[c], std::span<const std::string_view>(values.texts).subspan(first, count));
    }
  }

  /// As texts: a number alone would not say that it is of days.
  void add_dates(std::size_t c, std::span<const std::int64_t> days) {
    std::vector<std::string>& made = made_texts_[c];
    made.clear();
    for (const std::int64_t day : days) {
      const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{day}}};
      made.push_back(fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day())));
    }
    texts_.assign(made.begin(), made.end());
    record_.add(names_[c], std::span<const std::string_view>(texts_));
  }

  /// Whether int64 does not hold one of them: a name of digits, as in files of text. Then texts_ has all.
  bool has_large(std::size_t c, const ParquetValues& values, std::size_t first, std::size_t count) {
    const auto ints = std::span<const std::int64_t>(values.ints).subspan(first, count);
    if (std::ranges::all_of(ints, [](std::int64_t value) { return value >= 0; })) return false;
    std::vector<std::string>& made = made_texts_[c];
    made.clear();
    for (const std::int64_t value : ints) made.push_back(std::to_string(static_cast<std::uint64_t>(value)));
    texts_.assign(made.begin(), made.end());
    return true;
  }

  const std::filesystem::path file_;
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  std::vector<std::string> names_;
  std::vector<ParquetLeaf> leaves_;
  std::vector<bool> are_dates_;
  std::shared_ptr<parquet::RowGroupReader> rows_of_group_;
  std::vector<std::unique_ptr<ParquetColumnReader>> columns_;
  std::vector<ParquetValues> values_;
  std::vector<float> floats_;
  std::vector<std::vector<std::string>> made_texts_;  // of the record, by column
  std::vector<std::string_view> texts_;
  FeatureSet record_;
  int group_ = 0;
  std::int64_t left_ = 0;            // rows of the group that are not read
  std::int64_t row_ = 0, rows_ = 0;  // of those that are
};

/// A column of rows that wait to be written.
struct WaitingColumn {
  std::string name;
  FeatureKind kind = FeatureKind::Bytes;
  bool is_list = false;
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::string bytes;
  std::vector<std::size_t> ends;  // of texts in `bytes`
  std::vector<std::int16_t> definitions, repetitions;
};

class ParquetSink : public RecordSink {
 public:
  ParquetSink(const std::filesystem::path& file, const RecordSinkOptions& options)
      : file_(file), row_group_rows_(options.row_group_rows) {
    temporary_ = file;
    temporary_.replace_filename(".tmp-" + file.filename().string() + "-" + std::to_string(::getpid()));
    parquet::schema::NodeVector fields;
    for (std::size_t c = 0; c < options.columns.size(); ++c) {
      WaitingColumn& column = columns_.emplace_back();
      column.name = options.columns[c];
      column.kind = options.kinds[c].kind;
      column.is_list = options.kinds[c].is_list;
      fields.push_back(field_of(column));
    }
    const auto opened = arrow::io::FileOutputStream::Open(temporary_.string());
    if (!opened.ok())
      throw InvalidArgument("cannot write '" + file.string() + "': " + opened.status().message());
    out_ = *opened;
    parquet::WriterProperties::Builder properties;
    properties.compression(parquet::Compression::SNAPPY)->enable_page_checksum();
    const auto schema = std::static_pointer_cast<parquet::schema::GroupNode>(
        parquet::schema::GroupNode::Make("schema", parquet::Repetition::REQUIRED, fields));
    try {
      writing([&] { writer_ = parquet::ParquetFileWriter::Open(out_, schema, properties.build()); });
    } catch (...) {
      ::unlink(temporary_.c_str());
      throw;
    }
  }
  ~ParquetSink() override {
    if (!finished_) ::unlink(temporary_.c_str());
  }
  ParquetSink(const ParquetSink&) = delete;
  ParquetSink& operator=(const ParquetSink&) = delete;

  void write(const FeatureSet& record) override {
    std::size_t found = 0;
    for (WaitingColumn& column : columns_) {
      const bool is_next = found < record.features().size() && record.features()[found].name == column.name;
      const Feature* feature = is_next ? &record.features()[found] : record.find(column.name);
      if (feature) ++found;
      add(record, feature, column);
    }
    if (found < record.features().size())
      throw InvalidArgument("a feature has no column in this file, or two have one name");
    if (++rows_ == row_group_rows_) writing([&] { flush(); });
  }

  void finish() override {
    writing([&] {
      flush();
      writer_->Close();
      if (const arrow::Status status = out_->Close(); !status.ok())
        throw parquet::ParquetException(status.message());
    });
    rename_path(temporary_, file_);
    finished_ = true;
  }

 private:
  static parquet::schema::NodePtr leaf_of(const WaitingColumn& column, const std::string& name) {
    const auto optional = parquet::Repetition::OPTIONAL;
    using parquet::schema::PrimitiveNode;
    switch (column.kind) {
      case FeatureKind::Int64:
        return PrimitiveNode::Make(name, optional, parquet::Type::INT64);
      case FeatureKind::Float:
        return PrimitiveNode::Make(name, optional, parquet::Type::FLOAT);
      default:
        return PrimitiveNode::Make(name, optional, parquet::Type::BYTE_ARRAY, parquet::ConvertedType::UTF8);
    }
  }
  static parquet::schema::NodePtr field_of(const WaitingColumn& column) {
    using parquet::schema::GroupNode;
    if (!column.is_list) return leaf_of(column, column.name);
    const auto list = GroupNode::Make("list", parquet::Repetition::REPEATED, {leaf_of(column, "element")});
    return GroupNode::Make(column.name, parquet::Repetition::OPTIONAL, {list}, parquet::ConvertedType::LIST);
  }

  /// Throws: Unavailable with the file, as when the disk is full.
  template <class Body>
  void writing(Body body) {
    try {
      body();
    } catch (const parquet::ParquetException& error) {
      throw Unavailable("cannot write '" + file_.string() + "': " + error.what());
    }
  }

  static void add(const FeatureSet& record, const Feature* feature, WaitingColumn& column) {
    constexpr std::int16_t kNull = 0, kEmpty = 1, kElement = 3;
    const std::size_t count = feature && feature->kind != FeatureKind::None ? feature->count : 0;
    if (count > 0 && feature->kind != column.kind &&
        !(column.kind == FeatureKind::Float && feature->kind == FeatureKind::Int64))
      throw InvalidArgument("feature '" + column.name + "' has values of two types");
    if (column.is_list) {
      if (count == 0) {
        column.definitions.push_back(feature ? kEmpty : kNull);
        column.repetitions.push_back(0);
      }
      for (std::size_t i = 0; i < count; ++i) {
        column.definitions.push_back(kElement);
        column.repetitions.push_back(i == 0 ? 0 : 1);
      }
    } else {
      column.definitions.push_back(count > 0 ? 1 : 0);
    }
    if (count == 0) return;
    if (feature->kind == FeatureKind::Int64 && column.kind == FeatureKind::Int64)
      for (const std::int64_t value : record.ints(*feature)) column.ints.push_back(value);
    else if (feature->kind == FeatureKind::Int64)
      for (const std::int64_t value : record.ints(*feature))
        column.floats.push_back(static_cast<float>(value));
    else if (feature->kind == FeatureKind::Float)
      for (const float value : record.floats(*feature)) column.floats.push_back(value);
    else
      for (const std::string_view value : record.bytes(*feature)) {
        column.bytes.append(value);
        column.ends.push_back(column.bytes.size());
      }
  }

  void flush() {
    if (rows_ == 0) return;
    parquet::RowGroupWriter* group = writer_->AppendRowGroup();
    for (WaitingColumn& column : columns_) {
      parquet::ColumnWriter* writer = group->NextColumn();
      const auto levels = static_cast<std::int64_t>(column.definitions.size());
      const std::int16_t* repetitions = column.is_list ? column.repetitions.data() : nullptr;
      if (column.kind == FeatureKind::Int64) {
        static_cast<parquet::Int64Writer*>(writer)->WriteBatch(levels, column.definitions.data(), repetitions,
                                                               column.ints.data());
      } else if (column.kind == FeatureKind::Float) {
        static_cast<parquet::FloatWriter*>(writer)->WriteBatch(levels, column.definitions.data(), repetitions,
                                                               column.floats.data());
      } else {
        std::vector<parquet::ByteArray> texts;
        std::size_t begin = 0;
        for (const std::size_t end : column.ends) {
          texts.emplace_back(static_cast<std::uint32_t>(end - begin),
                             reinterpret_cast<const std::uint8_t*>(column.bytes.data()) + begin);
          begin = end;
        }
        static_cast<parquet::ByteArrayWriter*>(writer)->WriteBatch(levels, column.definitions.data(),
                                                                   repetitions, texts.data());
      }
      writer->Close();
      column.ints.clear();
      column.floats.clear();
      column.bytes.clear();
      column.ends.clear();
      column.definitions.clear();
      column.repetitions.clear();
    }
    group->Close();
    rows_ = 0;
  }

  const std::filesystem::path file_;
  std::filesystem::path temporary_;
  const std::int64_t row_group_rows_;
  std::vector<WaitingColumn> columns_;
  std::shared_ptr<arrow::io::FileOutputStream> out_;
  std::unique_ptr<parquet::ParquetFileWriter> writer_;
  std::int64_t rows_ = 0;  // that wait
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<RecordFile> open_parquet_records(const std::filesystem::path& file) {
  return std::make_unique<ParquetRecords>(file);
}

std::unique_ptr<RecordSink> create_parquet_sink(const std::filesystem::path& file,
                                                const RecordSinkOptions& options) {
  return std::make_unique<ParquetSink>(file, options);
}

}  // namespace braid
