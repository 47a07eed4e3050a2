#include "engine/input/formats/record_sink.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/input/files/byte_sink.h"
#include "engine/input/formats/criteo_fields.h"
#include "engine/input/formats/parquet_records.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

constexpr char kListSeparator = '|';

class TfRecordSink : public RecordSink {
 public:
  TfRecordSink(const std::filesystem::path& file, Compression compression) : out_(file, compression) {}
  void write(const FeatureSet& record) override {
    for (const Feature& f : record.features()) {
      if (f.steps)
        throw InvalidArgument("feature '" + std::string(f.name) +
                              "' is a list of features; only tf.train.Example is written");
      if (f.kind == FeatureKind::Float)
        example_.add(f.name, record.floats(f));
      else if (f.kind == FeatureKind::Int64)
        example_.add(f.name, record.ints(f));
      else
        example_.add(f.name, record.bytes(f));
    }
    out_.write(example_.finish());
  }
  void finish() override { out_.finish(); }

 private:
  TfRecordWriter out_;
  ExampleWriter example_;
};

class FieldsSink : public RecordSink {
 public:
  FieldsSink(const std::filesystem::path& file, const RecordSinkOptions& options)
      : out_(file, options.compression), criteo_(options.format == FileFormat::Criteo) {
    columns_ = criteo_ ? criteo_names() : options.columns;
    separator_ = criteo_ ? '\t' : options.separator;
    if (criteo_) return;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line_.push_back(separator_);
      append_quoted(columns_[c]);
    }
    line_.push_back('\n');
  }

  void write(const FeatureSet& record) override {
    std::size_t found = 0;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line_.push_back(separator_);
      // Most records have their features in the order of the columns.
      const bool next = found < record.features().size() && record.features()[found].name == columns_[c];
      const Feature* f = next ? &record.features()[found] : record.find(columns_[c]);
      if (!f) continue;
      append(record, *f, criteo_ && c > kCriteoIntegers);
      ++found;
    }
    if (found < record.features().size()) refuse_unknown(record);
    line_.push_back('\n');
    out_.write(line_);
    line_.clear();
  }
  void finish() override {
    out_.write(line_);
    out_.finish();
  }

 private:
  [[noreturn]] void refuse_unknown(const FeatureSet& record) const {
    for (const Feature& f : record.features())
      if (std::find(columns_.begin(), columns_.end(), f.name) == columns_.end())
        throw InvalidArgument("feature '" + std::string(f.name) + "' has no column in this format");
    throw InvalidArgument("two columns have the same name");
  }
  void append(const FeatureSet& record, const Feature& f, bool hash) {
    if (criteo_ && f.count > 1)
      throw InvalidArgument("feature '" + std::string(f.name) + "' has " + std::to_string(f.count) +
                            " values, the Criteo layout has 1");
    field_.clear();
    const auto put = [&](const auto& value) {
      if (!field_.empty()) field_.push_back(kListSeparator);
      fmt::format_to(std::back_inserter(field_), "{}", value);
    };
    for (const std::string_view value :
         f.kind == FeatureKind::Bytes ? record.bytes(f) : std::span<const std::string_view>())
      put(value);
    if (f.kind == FeatureKind::Float)
      for (const float value : record.floats(f)) put(value);
    if (f.kind == FeatureKind::Int64)
      for (const std::int64_t value : record.ints(f)) {
        if (hash)
          put(fmt::format("{:08x}", static_cast<std::uint64_t>(value)));
        else
          put(value);
      }
    if (criteo_ && field_.find('\n') != std::string::npos)
      throw InvalidArgument("feature '" + std::string(f.name) +
                            "' has a line end, which the Criteo layout has no place for");
    append_quoted(field_);
  }

  void append_quoted(std::string_view text) {
    const bool plain = text.find(separator_) == std::string_view::npos &&
                       text.find_first_of("\r\n") == std::string_view::npos && !text.starts_with('"') &&
                       !text.starts_with(' ') && !text.ends_with(' ');
    if (plain) {
      line_.append(text);
      return;
    }
    line_.push_back('"');
    for (const char c : text) {
      if (c == '"') line_.push_back('"');
      line_.push_back(c);
    }
    line_.push_back('"');
  }

  ByteSink out_;
  bool criteo_;
  char separator_ = ',';
  std::vector<std::string> columns_;
  std::string line_, field_;
};

class LinesSink : public RecordSink {
 public:
  LinesSink(const std::filesystem::path& file, Compression compression) : out_(file, compression) {}
  void write(const FeatureSet& record) override {
    const Feature* line = record.find("line");
    if (!line && record.features().size() == 1) line = &record.features()[0];
    if (!line || line->kind != FeatureKind::Bytes || line->count != 1)
      throw InvalidArgument("a line of text needs a feature 'line' of one text");
    const std::string_view text = record.bytes(*line)[0];
    if (text.find('\n') != std::string_view::npos)
      throw InvalidArgument("feature '" + std::string(line->name) + "' has a line end inside");
    out_.write(text);
    out_.write("\n");
  }
  void finish() override { out_.finish(); }

 private:
  ByteSink out_;
};

}  // namespace

std::unique_ptr<RecordSink> RecordSink::create(const std::filesystem::path& file,
                                               const RecordSinkOptions& options) {
  switch (options.format) {
    case FileFormat::TfRecord:
      return std::make_unique<TfRecordSink>(file, options.compression);
    case FileFormat::Criteo:
    case FileFormat::Csv:
      return std::make_unique<FieldsSink>(file, options);
    case FileFormat::Text:
      return std::make_unique<LinesSink>(file, options.compression);
    case FileFormat::Parquet:
      return create_parquet_sink(file, options);
    case FileFormat::Idx:
      break;
  }
  throw InvalidArgument("idx files are read, not written");
}

}  // namespace braid
