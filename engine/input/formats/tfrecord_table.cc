// TFRecord files of tf.train.Example by a schema whose columns are named after features.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "engine/input/formats/example.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/readers.h"
#include "engine/input/formats/tfrecord.h"

namespace braid {
namespace {

constexpr std::size_t kAbsent = SIZE_MAX;

/// Where the columns' features are in the records, looked up again only when the records' layout changes.
class FeaturePlaces {
 public:
  explicit FeaturePlaces(const std::vector<ColumnSpec>& columns) : columns_(columns) {}
  std::span<const std::size_t> of(const ExampleReader& example) {
    if (layout_ == example.layout() && !places_.empty()) return places_;
    layout_ = example.layout();
    places_.clear();
    for (const ColumnSpec& column : columns_) {
      const Feature* feature = example.find(field_of(column));
      places_.push_back(feature ? static_cast<std::size_t>(feature - example.features().data()) : kAbsent);
    }
    return places_;
  }

 private:
  const std::vector<ColumnSpec>& columns_;
  std::vector<std::size_t> places_;
  std::uint64_t layout_ = 0;
};

FieldValues values_of(const ExampleReader& example, const Feature& feature) {
  FieldValues values;
  if (feature.kind == FeatureKind::Bytes) values.texts = example.bytes(feature);
  if (feature.kind == FeatureKind::Float) values.floats = example.floats(feature);
  if (feature.kind == FeatureKind::Int64) values.ints = example.ints(feature);
  return values;
}

/// A name that no record has is most likely a mistake in the schema, not data that is missing.
void require_known_names(const std::vector<ColumnSpec>& columns, const ExampleReader& example,
                         const TfRecordReader& reader, const std::filesystem::path& file) {
  std::string known;
  bool any = false;
  for (const ColumnSpec& column : columns) any = any || example.find(field_of(column));
  if (any) return;
  for (const Feature& f : example.features()) known += (known.empty() ? "" : ", ") + std::string(f.name);
  throw InvalidArgument("'" + file.string() + "' record " + std::to_string(reader.number()) +
                        ": has none of the schema's columns; its features: " + known);
}

class TfRecordStream : public RowStream {
 public:
  TfRecordStream(const std::vector<std::filesystem::path>& files, TfRecordOptions options)
      : pieces_(whole_files(files)),
        builder_(std::move(options.columns)),
        places_(builder_.columns()),
        book_(options.read) {
    const auto& ignored = options.read.ignored;
    for (const ColumnSpec& column : builder_.columns())
      ignored_.push_back(std::find(ignored.begin(), ignored.end(), output_name(column)) != ignored.end());
  }

  std::shared_ptr<Table> next(std::int64_t most) override {
    const auto visit = [this](std::string_view record, const TfRecordReader& reader) {
      return add_record(record, reader);
    };
    while (builder_.rows() < most) {
      if (!reader_) {
        if (opened_ == pieces_.size()) break;
        book_.begin(pieces_[opened_]);
        reader_.emplace(pieces_[opened_++]);
      }
      bool is_bad = false;
      visited_ = taken_ = false;
      const bool there =
          !book_.ended() && visit_tfrecord(*reader_, pieces_[opened_ - 1].file, book_.bad(), visit, is_bad);
      // A record whose CRC is wrong is one, too.
      if (is_bad && !visited_) taken_ = book_.takes_next();
      if (is_bad && taken_ && book_.options().keep_bad_records) {
        book_.add_bad(builder_.rows());
        builder_.blank_row();
      }
      if (!there) reader_.reset();
    }
    return book_.finish(builder_.finish(book_.bad().count()));
  }

  void begin(std::vector<FilePiece> pieces) override {
    pieces_ = std::move(pieces);
    opened_ = 0;
    reader_.reset();
  }

 private:
  std::string add_record(std::string_view record, const TfRecordReader& reader) {
    visited_ = true;
    taken_ = book_.takes_next();
    if (!taken_) return {};
    try {
      example_.parse(record);
    } catch (const DataLoss& e) {
      return e.message();
    }
    if (std::exchange(first_, false))
      require_known_names(builder_.columns(), example_, reader, pieces_[opened_ - 1].file);
    std::string problem = add_example();
    if (!problem.empty()) {
      builder_.drop_row();
      return problem;
    }
    builder_.end_row();
    if (book_.has_keys()) book_.add_key(first_text(example_, book_.options().key_column));
    if (book_.has_groups()) book_.add_group(first_text(example_, book_.options().group_column));
    return {};
  }

  /// Appends the record; returns what is wrong with it, or an empty text.
  std::string add_example() {
    const auto at = places_.of(example_);
    for (std::size_t c = 0; c < at.size(); ++c) {
      if (ignored_[c]) {
        builder_.add_blank(c);
        continue;
      }
      const FieldValues values =
          at[c] == kAbsent ? FieldValues{} : values_of(example_, example_.features()[at[c]]);
      if (const std::string problem = builder_.add_values(c, values); !problem.empty())
        return "feature '" + builder_.columns()[c].name + "': " + problem;
    }
    for (const std::string& name : {book_.options().key_column, book_.options().group_column})
      if (!name.empty() && !example_.find(name)) return "there is no feature '" + name + "'";
    return {};
  }

  std::vector<FilePiece> pieces_;
  TableBuilder builder_;
  FeaturePlaces places_;
  RowBook book_;
  std::vector<bool> ignored_;  // by column
  ExampleReader example_;
  bool first_ = true;
  bool visited_ = false, taken_ = false;  // the present record
  std::size_t opened_ = 0;
  std::optional<TfRecordReader> reader_;  // of the open file
};

}  // namespace

std::unique_ptr<RowStream> stream_tfrecord(std::vector<std::filesystem::path> files,
                                           TfRecordOptions options) {
  return std::make_unique<TfRecordStream>(std::move(files), std::move(options));
}

std::shared_ptr<const Table> read_tfrecord(const std::vector<std::filesystem::path>& files,
                                           const TfRecordOptions& options) {
  return TfRecordStream(files, options).next(kAllRows);
}

bool visit_tfrecord(TfRecordReader& reader, const std::filesystem::path& file, BadRecords& bad,
                    const TfRecordVisit& visit, bool& is_bad) {
  std::string problem;
  try {
    const auto record = reader.next();
    if (!record) return false;
    problem = visit(*record, reader);
    if (!problem.empty())
      problem = "'" + file.string() + "' record " + std::to_string(reader.number()) + " at byte " +
                std::to_string(reader.offset()) + ": " + problem;
  } catch (const DataLoss& e) {
    problem = e.message() + (reader.can_go_on() ? "" : "; the rest of the file is lost");
  }
  is_bad = !problem.empty();
  if (is_bad) bad.add(problem);
  return true;
}

void for_each_tfrecord(const std::filesystem::path& file, BadRecords& bad, const TfRecordVisit& visit) {
  bool is_bad = false;
  for (TfRecordReader reader(file); visit_tfrecord(reader, file, bad, visit, is_bad);) continue;
}

}  // namespace braid
