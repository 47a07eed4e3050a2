// TFRecord files of tf.train.Example by a schema whose columns are named after features.
#include <utility>

#include "base/error.h"
#include "engine/input/example.h"
#include "engine/input/line_reader.h"
#include "engine/input/readers.h"
#include "engine/input/tfrecord.h"

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
      const Feature* feature = example.find(column.name);
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

/// Appends one record; returns what is wrong with it, or an empty text.
std::string add_example(const ExampleReader& example, FeaturePlaces& places, TableBuilder& builder) {
  const auto at = places.of(example);
  for (std::size_t c = 0; c < at.size(); ++c) {
    const FieldValues values =
        at[c] == kAbsent ? FieldValues{} : values_of(example, example.features()[at[c]]);
    if (const std::string problem = builder.add_values(c, values); !problem.empty())
      return "feature '" + builder.columns()[c].name + "': " + problem;
  }
  return {};
}

/// A name that no record has is most likely a mistake in the schema, not data that is missing.
void require_known_names(const std::vector<ColumnSpec>& columns, const ExampleReader& example,
                         const TfRecordReader& reader, const std::filesystem::path& file) {
  std::string known;
  bool any = false;
  for (const ColumnSpec& column : columns) any = any || example.find(column.name);
  if (any) return;
  for (const Feature& f : example.features()) known += (known.empty() ? "" : ", ") + std::string(f.name);
  throw InvalidArgument("'" + file.string() + "' record " + std::to_string(reader.number()) +
                        ": has none of the schema's columns; its features: " + known);
}

}  // namespace

std::shared_ptr<const Table> read_tfrecord(const std::vector<std::filesystem::path>& files,
                                           const TfRecordOptions& options) {
  TableBuilder builder(options.columns);
  FeaturePlaces places(builder.columns());
  ExampleReader example;
  bool first = true;
  RowShard shard(options.read);
  BadRecords bad(options.read.max_bad_records);
  for (const auto& file : files)
    for_each_tfrecord(file, bad, [&](std::string_view record, const TfRecordReader& reader) -> std::string {
      if (!shard.takes_next()) return {};
      try {
        example.parse(record);
      } catch (const DataLoss& e) {
        return e.message();
      }
      if (std::exchange(first, false)) require_known_names(builder.columns(), example, reader, file);
      std::string problem = add_example(example, places, builder);
      if (problem.empty())
        builder.end_row();
      else
        builder.drop_row();
      return problem;
    });
  return shard.count_into(builder.finish(bad.count()));
}

void for_each_tfrecord(const std::filesystem::path& file, BadRecords& bad, const TfRecordVisit& visit) {
  for (TfRecordReader reader(file);;) {
    std::string problem;
    try {
      const auto record = reader.next();
      if (!record) return;
      problem = visit(*record, reader);
      if (!problem.empty())
        problem = "'" + file.string() + "' record " + std::to_string(reader.number()) + " at byte " +
                  std::to_string(reader.offset()) + ": " + problem;
    } catch (const DataLoss& e) {
      problem = e.message() + (reader.can_go_on() ? "" : "; the rest of the file is lost");
    }
    if (!problem.empty()) bad.add(problem);
  }
}

}  // namespace braid
