// The Criteo layout (Kaggle Display Advertising Challenge): label, I1..I13 integers, C1..C26 hexadecimal
// hashes; empty means missing. Integers become log(1 + max(x, 0)), missing ones 0. A category is taken modulo
// `buckets` after mixing in its column; missing ones share bucket 0 of their column. Spreadsheets turn some
// hashes into numbers such as 1E+05: what is not hexadecimal is hashed as text. As TFRecord the fields are
// features of the same names: numbers as int64, float or text, categories as text or, as an int64, the hash's
// number.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "engine/input/files/byte_source.h"
#include "engine/input/formats/criteo_builder.h"
#include "engine/input/formats/criteo_fields.h"
#include "engine/input/formats/example.h"
#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/readers.h"
#include "engine/input/formats/sniff.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

std::string wrong_count(std::size_t fields) {
  return "expected " + std::to_string(kCriteoFields) + " fields, got " + std::to_string(fields);
}

/// `fields` with their label, unless they are without one where that is `unlabelled`.
std::string add_line(std::span<const std::string_view> fields, bool unlabelled, CriteoBuilder& builder) {
  const bool absent = unlabelled && fields.size() == kCriteoFields - 1;
  if (!absent && fields.size() != kCriteoFields) return wrong_count(fields.size());
  const auto inputs = fields.subspan(absent ? 0 : 1);
  if (unlabelled)
    builder.set_label(0.0F);
  else if (std::string problem = builder.set_label(fields[0]); !problem.empty())
    return "label " + problem;
  for (std::size_t i = 0; i < kCriteoIntegers; ++i)
    if (const std::string problem = builder.set_integer(i, inputs[i]); !problem.empty())
      return criteo_name(1 + i) + " " + problem;
  for (std::size_t c = 0; c < kCriteoCategories; ++c) builder.set_category(c, inputs[kCriteoIntegers + c]);
  builder.end_row();
  return {};
}

/// The features of a record by the place of their field, looked up again only when their layout changes.
class CriteoFeatures {
 public:
  const Feature* at(const ExampleReader& example, std::size_t field) {
    if (layout_ != example.layout()) {
      layout_ = example.layout();
      for (std::size_t f = 0; f < kCriteoFields; ++f) {
        const Feature* found = example.find(names_[f]);
        places_[f] = found ? found - example.features().data() : -1;
      }
    }
    return places_[field] < 0 ? nullptr : &example.features()[static_cast<std::size_t>(places_[field])];
  }
  const std::string& name(std::size_t field) const { return names_[field]; }

 private:
  std::vector<std::string> names_ = criteo_names();
  std::array<std::ptrdiff_t, kCriteoFields> places_{};
  std::uint64_t layout_ = 0;
};

std::string add_example(const ExampleReader& example, bool unlabelled, CriteoFeatures& features,
                        CriteoBuilder& builder) {
  if (unlabelled) builder.set_label(0.0F);
  for (std::size_t f = unlabelled ? 1 : 0; f < kCriteoFields; ++f) {
    const Feature* feature = features.at(example, f);
    const bool category = f > kCriteoIntegers;
    const std::size_t count = feature ? feature->count : 0;
    std::string problem;
    if (count > 1) problem = "has " + std::to_string(count) + " values, not 1";
    if (count == 0 && f == 0) problem = "is missing";
    if (count == 0 && problem.empty()) {
      if (category)
        builder.set_category(f - 1 - kCriteoIntegers, std::string_view());
      else
        builder.set_integer(f - 1, std::string_view());
    } else if (problem.empty()) {
      const auto set = [&](auto value, float number) -> std::string {
        if (f == 0) {
          if constexpr (std::is_same_v<decltype(value), std::string_view>) return builder.set_label(value);
          return builder.set_label(number);
        }
        if (category) {
          if constexpr (std::is_same_v<decltype(value), float>)
            return "is a float, not a category";
          else
            builder.set_category(f - 1 - kCriteoIntegers, value);
          return {};
        }
        if constexpr (std::is_same_v<decltype(value), std::string_view>)
          return builder.set_integer(f - 1, value);
        return builder.set_integer(f - 1, number);
      };
      if (feature->kind == FeatureKind::Bytes) problem = set(example.bytes(*feature)[0], 0);
      if (feature->kind == FeatureKind::Float)
        problem = set(example.floats(*feature)[0], example.floats(*feature)[0]);
      if (feature->kind == FeatureKind::Int64)
        problem = set(example.ints(*feature)[0], static_cast<float>(example.ints(*feature)[0]));
    }
    if (!problem.empty()) return "feature '" + features.name(f) + "': " + problem;
  }
  builder.end_row();
  return {};
}

class CriteoStream : public RowStream {
 public:
  CriteoStream(const std::vector<std::filesystem::path>& files, CriteoOptions options)
      : pieces_(whole_files(files)),
        options_(std::move(options)),
        builder_(options_),
        book_(options_.read),
        unlabelled_(std::find(options_.read.ignored.begin(), options_.read.ignored.end(), "label") !=
                    options_.read.ignored.end()) {}

  std::shared_ptr<Table> next(std::int64_t most) override {
    while (builder_.rows() < most && (record_ || reader_ || open_next()))
      if (book_.ended() || !(record_ ? next_line() : next_example())) {
        record_.reset();
        reader_.reset();
      }
    return book_.finish(builder_.finish(book_.bad().count()));
  }

  void begin(std::vector<FilePiece> pieces) override {
    pieces_ = std::move(pieces);
    opened_ = 0;
    record_.reset();
    reader_.reset();
  }

 private:
  const std::filesystem::path& file() const { return pieces_[opened_ - 1].file; }

  bool open_next() {
    if (opened_ == pieces_.size()) return false;
    const FilePiece& piece = pieces_[opened_++];
    book_.begin(piece);
    const char separator = piece.bytes ? separator_of(std::string_view(*piece.bytes).substr(piece.begin))
                                       : layout_of(piece.file);
    if (separator == kExamples) {
      reader_.emplace(piece);
      return true;
    }
    record_.emplace(open_piece(piece), separator);
    names_ = criteo_names();
    first_ = true;
    return true;
  }

  /// What is between the fields of a file, or kExamples. Pieces of a file ask for it once.
  char layout_of(const std::filesystem::path& file) {
    const auto found = layouts_.find(file.native());
    if (found != layouts_.end()) return found->second;
    const char layout = holds_tfrecords(file) ? kExamples : separator_of(file);
    layouts_.emplace(file.native(), layout);
    return layout;
  }

  /// Of the first line.
  static char separator_of(const std::filesystem::path& file) {
    LineSource lines(file);
    std::string_view line;
    lines.next(line);
    return separator_of(line);
  }
  static char separator_of(std::string_view text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    return line.find('\t') != std::string_view::npos ? '\t' : ',';
  }

  bool next_line() {
    if (!record_->next()) return false;
    const auto& fields = record_->fields();
    if (std::exchange(first_, false) && !fields.empty() &&
        (fields[0] == "label" || (unlabelled_ && fields[0] == "I1")))
      return true;
    if (!book_.takes_next()) return true;
    const std::string problem =
        record_->problem().empty() ? add_line(fields, unlabelled_, builder_) : record_->problem();
    if (!problem.empty()) {
      book_.bad().add(file(), book_.line(record_->line()), problem);
      keep_bad();
      return true;
    }
    const auto text = [&](const std::string& name) -> std::string_view {
      const std::size_t place = place_of(name), absent = kCriteoFields - fields.size();
      if (place < absent) refuse_column(name, file(), {names_.begin() + 1, names_.end()});
      return fields[place - absent];
    };
    if (book_.has_keys()) book_.add_key(text(book_.options().key_column));
    if (book_.has_groups()) book_.add_group(text(book_.options().group_column));
    return true;
  }

  bool next_example() {
    bool is_bad = false;
    visited_ = taken_ = false;
    const bool there = visit_tfrecord(
        *reader_, file(), book_.bad(),
        [this](std::string_view record, const TfRecordReader&) { return add_record(record); }, is_bad);
    // A record whose CRC is wrong is one, too.
    if (is_bad && !visited_) taken_ = book_.takes_next();
    if (is_bad && taken_) keep_bad();
    return there;
  }

  std::string add_record(std::string_view record) {
    visited_ = true;
    taken_ = book_.takes_next();
    if (!taken_) return {};
    try {
      example_.parse(record);
    } catch (const DataLoss& e) {
      return e.message();
    }
    if (std::string problem = add_example(example_, unlabelled_, features_, builder_); !problem.empty())
      return problem;
    if (book_.has_keys()) book_.add_key(first_text(example_, book_.options().key_column));
    if (book_.has_groups()) book_.add_group(first_text(example_, book_.options().group_column));
    return {};
  }

  void keep_bad() {
    if (!book_.options().keep_bad_records) return;
    book_.add_bad(builder_.rows());
    builder_.blank_row();
  }

  std::size_t place_of(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) refuse_column(name, file(), names_);
    return static_cast<std::size_t>(found - names_.begin());
  }

  static constexpr char kExamples = 0;

  std::vector<FilePiece> pieces_;
  const CriteoOptions options_;
  CriteoBuilder builder_;
  RowBook book_;
  const bool unlabelled_;
  CriteoFeatures features_;
  ExampleReader example_;
  std::unordered_map<std::string, char> layouts_;  // of files
  bool visited_ = false, taken_ = false;           // the present Example
  std::size_t opened_ = 0;
  // Of the open file.
  std::optional<FieldReader> record_;  // of text
  std::optional<TfRecordReader> reader_;
  std::vector<std::string> names_;
  bool first_ = true;
};

}  // namespace

std::string criteo_problem(const std::vector<std::string_view>& fields) {
  if (fields.size() != kCriteoFields) return wrong_count(fields.size());
  if (fields[0] != "0" && fields[0] != "1")
    return "label " + criteo_field_problem(fields[0], "is not 0 or 1");
  float value = 0;
  for (std::size_t f = 1; f <= kCriteoIntegers; ++f)
    if (!fields[f].empty() && !criteo_number(fields[f], value))
      return criteo_name(f) + " " + criteo_field_problem(fields[f], "is not a number");
  return {};
}

std::string criteo_name(std::size_t field) {
  if (field == 0) return "label";
  return field <= kCriteoIntegers ? "I" + std::to_string(field)
                                  : "C" + std::to_string(field - kCriteoIntegers);
}

std::vector<std::string> criteo_names() {
  std::vector<std::string> names;
  for (std::size_t f = 0; f < kCriteoFields; ++f) names.push_back(criteo_name(f));
  return names;
}

std::unique_ptr<RowStream> stream_criteo(std::vector<std::filesystem::path> files, CriteoOptions options) {
  return std::make_unique<CriteoStream>(std::move(files), std::move(options));
}

std::shared_ptr<const Table> read_criteo(const std::vector<std::filesystem::path>& files,
                                         const CriteoOptions& options) {
  return CriteoStream(files, options).next(kAllRows);
}

}  // namespace braid
