// The Criteo layout (Kaggle Display Advertising Challenge): label, I1..I13 integers, C1..C26 hexadecimal
// hashes; empty means missing. Integers become log(1 + max(x, 0)), missing ones 0. A category is taken modulo
// `buckets` after mixing in its column; missing ones share bucket 0 of their column. Spreadsheets turn some
// hashes into numbers such as 1E+05: what is not hexadecimal is hashed as text. As TFRecord the fields are
// features of the same names: numbers as int64, float or text, categories as text or, as an int64, the hash's
// number.
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/criteo_fields.h"
#include "engine/input/example.h"
#include "engine/input/field_reader.h"
#include "engine/input/line_reader.h"
#include "engine/input/readers.h"
#include "engine/input/sniff.h"
#include "engine/input/tfrecord.h"

namespace braid {
namespace {

std::int64_t bucket_of_hash(std::uint64_t value, std::size_t column, std::int64_t buckets) {
  value = (value ^ (column + 1) * 0x9E3779B97F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
  value ^= value >> 31;
  return buckets == 1 ? 0 : 1 + static_cast<std::int64_t>(value % static_cast<std::uint64_t>(buckets - 1));
}

std::int64_t bucket_of_text(std::string_view field, std::size_t column, std::int64_t buckets) {
  if (field.empty()) return 0;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 16);
  if (error != std::errc() || end != field.data() + field.size()) value = stable_hash(field);
  return bucket_of_hash(value, column, buckets);
}

bool parse_float(std::string_view field, float& value) {
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size() && std::isfinite(value);
}

std::string quoted(std::string_view field, const char* problem) {
  return "'" + std::string(field) + "' " + problem;
}

/// One record at a time; a field's problem is an unnamed text that the caller puts a name in front of.
class CriteoBuilder {
 public:
  explicit CriteoBuilder(const CriteoOptions& options) : options_(options) {
    if (options.buckets < 1) throw InvalidArgument("criteo: hash buckets must be at least 1");
  }

  std::string set_label(std::string_view text) {
    if (text != "0" && text != "1") return quoted(text, "is not 0 or 1");
    label_now_ = text == "1" ? 1.0F : 0.0F;
    return {};
  }
  std::string set_label(float value) {
    if (value != 0.0F && value != 1.0F) return quoted(std::to_string(value), "is not 0 or 1");
    label_now_ = value;
    return {};
  }
  std::string set_integer(std::size_t i, std::string_view text) {
    float value = 0;
    if (!text.empty() && !parse_float(text, value)) return quoted(text, "is not a number");
    return set_integer(i, value);
  }
  std::string set_integer(std::size_t i, float value) {
    if (!std::isfinite(value)) return quoted(std::to_string(value), "is not a finite number");
    integers_[i] = transformed(value);
    return {};
  }
  void set_category(std::size_t c, std::string_view text) {
    categories_[c] = bucket_of_text(text, c, options_.buckets);
  }
  void set_category(std::size_t c, std::int64_t value) {
    categories_[c] = bucket_of_hash(static_cast<std::uint64_t>(value), c, options_.buckets);
  }
  void end_row() {
    label_.push_back(label_now_);
    dense_.insert(dense_.end(), integers_.begin(), integers_.end());
    sparse_.insert(sparse_.end(), categories_.begin(), categories_.end());
  }

  std::shared_ptr<Table> finish(std::int64_t skipped) const {
    auto table = std::make_shared<Table>();
    table->rows = static_cast<std::int64_t>(label_.size());
    table->skipped = skipped;
    table->columns.push_back({"dense", Tensor::from<float>(Shape{table->rows, kCriteoIntegers}, dense_)});
    table->columns.push_back(
        {"sparse", Tensor::from<std::int64_t>(Shape{table->rows, kCriteoCategories}, sparse_)});
    table->columns.push_back({"label", Tensor::from<float>(Shape{table->rows}, label_)});
    return table;
  }

 private:
  float transformed(float value) const {
    switch (options_.dense) {
      case DenseTransform::Raw:
        return value;
      case DenseTransform::SquaredLog:
        return value > 2 ? std::floor(std::log(value) * std::log(value)) : value;
      case DenseTransform::Log1p:
        break;
    }
    return std::log1p(std::max(value, 0.0F));
  }

  const CriteoOptions& options_;
  float label_now_ = 0;
  std::array<float, kCriteoIntegers> integers_{};
  std::array<std::int64_t, kCriteoCategories> categories_{};
  std::vector<float> dense_, label_;
  std::vector<std::int64_t> sparse_;
};

std::string wrong_count(std::size_t fields) {
  return "expected " + std::to_string(kCriteoFields) + " fields, got " + std::to_string(fields);
}

std::string add_line(const std::vector<std::string_view>& fields, CriteoBuilder& builder) {
  if (fields.size() != kCriteoFields) return wrong_count(fields.size());
  if (std::string problem = builder.set_label(fields[0]); !problem.empty()) return "label " + problem;
  for (std::size_t i = 0; i < kCriteoIntegers; ++i)
    if (const std::string problem = builder.set_integer(i, fields[1 + i]); !problem.empty())
      return criteo_name(1 + i) + " " + problem;
  for (std::size_t c = 0; c < kCriteoCategories; ++c)
    builder.set_category(c, fields[1 + kCriteoIntegers + c]);
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

std::string add_example(const ExampleReader& example, CriteoFeatures& features, CriteoBuilder& builder) {
  for (std::size_t f = 0; f < kCriteoFields; ++f) {
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

void read_lines(const std::filesystem::path& file, RowShard& shard, BadRecords& bad, CriteoBuilder& builder) {
  const std::string text = read_text_file(file);
  const char separator = text.substr(0, text.find('\n')).find('\t') != std::string::npos ? '\t' : ',';
  FieldReader record(text, separator);
  for (bool first = true; record.next(); first = false) {
    if (first && !record.fields().empty() && record.fields()[0] == "label") continue;
    if (!shard.takes_next()) continue;
    const std::string problem =
        record.problem().empty() ? add_line(record.fields(), builder) : record.problem();
    if (!problem.empty()) bad.add(file, record.line(), problem);
  }
}

}  // namespace

std::string criteo_problem(const std::vector<std::string_view>& fields) {
  if (fields.size() != kCriteoFields) return wrong_count(fields.size());
  if (fields[0] != "0" && fields[0] != "1") return "label " + quoted(fields[0], "is not 0 or 1");
  float value = 0;
  for (std::size_t f = 1; f <= kCriteoIntegers; ++f)
    if (!fields[f].empty() && !parse_float(fields[f], value))
      return criteo_name(f) + " " + quoted(fields[f], "is not a number");
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

std::shared_ptr<const Table> read_criteo(const std::vector<std::filesystem::path>& files,
                                         const CriteoOptions& options) {
  CriteoBuilder builder(options);
  CriteoFeatures features;
  ExampleReader example;
  RowShard shard(options.read);
  BadRecords bad(options.read.max_bad_records);
  for (const auto& file : files) {
    if (!holds_tfrecords(file)) {
      read_lines(file, shard, bad, builder);
      continue;
    }
    for_each_tfrecord(file, bad, [&](std::string_view record, const TfRecordReader&) -> std::string {
      if (!shard.takes_next()) return {};
      try {
        example.parse(record);
      } catch (const DataLoss& e) {
        return e.message();
      }
      return add_example(example, features, builder);
    });
  }
  return shard.count_into(builder.finish(bad.count()));
}

}  // namespace braid
