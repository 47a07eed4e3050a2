#include "engine/input/formats/record_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "engine/input/formats/criteo_fields.h"
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/idx_array.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/parquet_records.h"
#include "engine/input/formats/sniff.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

class TfRecordFile : public RecordFile {
 public:
  TfRecordFile(const std::filesystem::path& file, std::int64_t max_bad)
      : file_(file), reader_(file), bad_(max_bad) {}
  bool next() override {
    for (;;) {
      std::string problem;
      try {
        const auto record = reader_.next();
        if (!record) return false;
        problem = "'" + file_.string() + "' record " + std::to_string(reader_.number()) + " at byte " +
                  std::to_string(reader_.offset()) + ": ";
        example_.parse(*record);
        return true;
      } catch (const DataLoss& e) {
        bad_.add(problem + e.message());
      }
    }
  }
  const FeatureSet& record() const override { return example_; }
  FileFormat format() const override { return FileFormat::TfRecord; }
  Compression compression() const override { return reader_.compression(); }
  std::int64_t bad_records() const override { return bad_.count(); }

 private:
  std::filesystem::path file_;
  TfRecordReader reader_;
  BadRecords bad_;
  ExampleReader example_;
};

/// A number of either sign; nothing that only begins like one.
template <class T>
bool parse(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

/// Numbers beyond the range of float are texts; those that are too small for it become 0.
bool parse_float_value(std::string_view text, float& value) {
  double exact = 0;
  if (!parse(text, exact)) return false;
  value = static_cast<float>(exact);
  return std::isfinite(value) || !std::isfinite(exact);
}

/// Digits that are no integer's decimal text but for a plus, "007" and what int64 does not hold, are names:
/// as numbers they would be others.
bool is_name_of_digits(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return false;
  std::int64_t integer = 0;
  return !parse(text, integer) || std::to_string(integer) != text;
}

FeatureKind kind_of_text(std::string_view text) {
  if (is_name_of_digits(text)) return FeatureKind::Bytes;
  if (std::int64_t integer = 0; parse(text, integer)) return FeatureKind::Int64;
  if (float number = 0; parse_float_value(text, number)) return FeatureKind::Float;
  return FeatureKind::Bytes;
}

/// What holds values of both kinds. None is what has no values yet.
FeatureKind common_kind(FeatureKind a, FeatureKind b) {
  if (a == FeatureKind::None || a == b) return b;
  const bool numbers = a != FeatureKind::Bytes && b != FeatureKind::Bytes;
  return numbers ? FeatureKind::Float : FeatureKind::Bytes;
}

/// Records of one number of fields. The file is read twice: types need a look at all of it before the first
/// record.
class FieldsFile : public RecordFile {
 public:
  FieldsFile(const std::filesystem::path& file, const RecordFileOptions& options, FileFormat format)
      : file_(file), format_(format), comment_(options.comment), bad_(options.max_bad_records) {
    const std::string head = read_head(file);
    const TextShape shape = text_shape(head, options.comment, options.separator);
    separator_ = shape.separator != 0 ? shape.separator : ',';
    const bool is_criteo = format == FileFormat::Criteo;
    names_ = is_criteo ? criteo_names() : options.names;
    auto source = open_bytes(file);
    compression_ = source->compression();
    FieldReader lines(std::move(source), separator_, comment_);
    header_ = (is_criteo ? without_byte_order_mark(head).starts_with("label")
                         : options.header.value_or(shape.has_header || has_one_of(head, options.expected))) &&
              lines.next();
    if (names_.empty()) take_names(header_ ? lines.fields() : std::vector<std::string_view>(shape.fields));
    if (options.texts)
      kinds_.assign(names_.size(), FeatureKind::Bytes);
    else
      find_kinds(std::move(lines));
    lines_.emplace(open_bytes(file), separator_, comment_);
    if (header_) lines_->next();
  }

  bool next() override {
    while (lines_->next()) {
      const auto& fields = lines_->fields();
      if (const std::string problem = problem_of(*lines_); !problem.empty()) {
        bad_.add(file_, lines_->line(), problem);
        continue;
      }
      record_.clear();
      for (std::size_t f = 0; f < fields.size(); ++f)
        if (!fields[f].empty()) add(f, fields[f]);
      return true;
    }
    return false;
  }
  const FeatureSet& record() const override { return record_; }
  FileFormat format() const override { return format_; }
  Compression compression() const override { return compression_; }
  std::int64_t bad_records() const override { return bad_.count(); }
  std::vector<std::string> column_names() const override { return names_; }
  char separator() const override { return separator_; }
  bool has_header() const override { return header_; }

 private:
  /// Whether the first record of `head` has a field of one of the names.
  bool has_one_of(const std::string& head, const std::vector<std::string>& names) const {
    FieldReader first(without_byte_order_mark(head), separator_, comment_);
    if (names.empty() || !first.next()) return false;
    return std::any_of(first.fields().begin(), first.fields().end(), [&](std::string_view field) {
      return std::find(names.begin(), names.end(), field) != names.end();
    });
  }

  std::string problem_of(const FieldReader& line) const {
    const std::size_t count = line.fields().size();
    if (!line.problem().empty()) return line.problem();
    if (count != names_.size())
      return "expected " + std::to_string(names_.size()) + " fields, got " + std::to_string(count);
    return format_ == FileFormat::Criteo ? criteo_problem(line.fields()) : std::string();
  }

  void add(std::size_t f, std::string_view text) {
    std::int64_t integer = 0;
    float number = 0;
    if (kinds_[f] == FeatureKind::Int64 && parse(text, integer))
      record_.add(names_[f], integer);
    else if (kinds_[f] == FeatureKind::Float && parse_float_value(text, number))
      record_.add(names_[f], number);
    else
      record_.add(names_[f], text);
  }

  /// What has no name is called by its number; of equal names the later ones have theirs added.
  void take_names(const std::vector<std::string_view>& header) {
    for (const std::string_view field : header) {
      const std::string number = std::to_string(names_.size() + 1);
      std::string name(field);
      if (name.empty()) name = number;
      if (std::find(names_.begin(), names_.end(), name) != names_.end()) name += "." + number;
      names_.push_back(std::move(name));
    }
  }

  void find_kinds(FieldReader lines) {
    kinds_.assign(names_.size(), FeatureKind::None);
    while (lines.next()) {
      if (!problem_of(lines).empty()) continue;
      for (std::size_t f = 0; f < names_.size(); ++f)
        if (const std::string_view text = lines.fields()[f]; !text.empty() && kinds_[f] != FeatureKind::Bytes)
          kinds_[f] = common_kind(kinds_[f], kind_of_text(text));
    }
    if (format_ != FileFormat::Criteo) return;
    // A hash of digits only is still a text.
    for (std::size_t f = 1 + kCriteoIntegers; f < kinds_.size(); ++f) kinds_[f] = FeatureKind::Bytes;
  }

  std::filesystem::path file_;
  FileFormat format_;
  std::string comment_;
  BadRecords bad_;
  Compression compression_ = Compression::None;
  char separator_ = ',';
  bool header_ = false;
  std::vector<std::string> names_;
  std::vector<FeatureKind> kinds_;
  std::optional<FieldReader> lines_;
  FeatureSet record_;
};

class LinesFile : public RecordFile {
 public:
  explicit LinesFile(const std::filesystem::path& file)
      : compression_(open_bytes(file)->compression()), lines_(FilePiece(file)) {}
  bool next() override {
    std::string_view line;
    if (!lines_.next(line)) return false;
    record_.clear();
    record_.add("line", line);
    return true;
  }
  const FeatureSet& record() const override { return record_; }
  FileFormat format() const override { return FileFormat::Text; }
  Compression compression() const override { return compression_; }
  std::vector<std::string> column_names() const override { return {"line"}; }

 private:
  const Compression compression_;
  LineSource lines_;
  FeatureSet record_;
};

class IdxFile : public RecordFile {
 public:
  explicit IdxFile(const std::filesystem::path& file)
      : array_(read_idx_array(file)), compression_(open_bytes(file)->compression()) {}
  bool next() override {
    if (at_ == array_.dims[0]) return false;
    record_.clear();
    const bool list = array_.dims.size() == 1;
    const char* name = list ? "label" : "image";
    if (array_.dtype == DType::UInt8 && !list) {
      const auto item = static_cast<std::size_t>(array_.elements() / array_.dims[0]);
      record_.add(
          name,
          std::string_view(array_.bytes).substr(array_.offset + static_cast<std::size_t>(at_) * item, item));
    } else {
      array_.add_item(at_, name, record_);
    }
    ++at_;
    return true;
  }
  const FeatureSet& record() const override { return record_; }
  FileFormat format() const override { return FileFormat::Idx; }
  Compression compression() const override { return compression_; }

 private:
  IdxArray array_;
  Compression compression_;
  std::int64_t at_ = 0;
  FeatureSet record_;
};

}  // namespace

const char* file_format_name(FileFormat format) {
  switch (format) {
    case FileFormat::TfRecord:
      return "tfrecord";
    case FileFormat::Criteo:
      return "criteo";
    case FileFormat::Csv:
      return "csv";
    case FileFormat::Text:
      return "text";
    case FileFormat::Parquet:
      return "parquet";
    case FileFormat::Idx:
      break;
  }
  return "idx";
}

FileFormat file_format_from_name(const std::string& name) {
  for (const FileFormat format : {FileFormat::TfRecord, FileFormat::Criteo, FileFormat::Csv, FileFormat::Text,
                                  FileFormat::Idx, FileFormat::Parquet})
    if (name == file_format_name(format)) return format;
  if (name == "tsv") return FileFormat::Csv;
  throw InvalidArgument("there is no data format '" + name +
                        "'; tfrecord, criteo, csv, tsv, text, idx and parquet are");
}

std::unique_ptr<RecordFile> RecordFile::open(const std::filesystem::path& file,
                                             const RecordFileOptions& options) {
  FileFormat format = options.format ? *options.format : sniff_format(file, options.comment);
  const bool has_columns = options.header || !options.names.empty() || options.separator != 0;
  if (!options.format && format == FileFormat::Text && has_columns) format = FileFormat::Csv;
  switch (format) {
    case FileFormat::TfRecord:
      return std::make_unique<TfRecordFile>(file, options.max_bad_records);
    case FileFormat::Text:
      return std::make_unique<LinesFile>(file);
    case FileFormat::Idx:
      return std::make_unique<IdxFile>(file);
    case FileFormat::Parquet:
      return open_parquet_records(file);
    default:
      return std::make_unique<FieldsFile>(file, options, format);
  }
}

}  // namespace braid
