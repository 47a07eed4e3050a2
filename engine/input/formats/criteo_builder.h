// Rows of the Criteo layout as a table: what the fields' values become (criteo.cc says the formulas). Private
// to criteo.cc, whose loops have it inline. Thread rule: one thread.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/formats/criteo_fields.h"
#include "engine/input/formats/readers.h"
#include "engine/input/schema/table.h"

namespace braid {

inline std::int64_t criteo_bucket_of_hash(std::uint64_t value, std::size_t column, std::int64_t buckets) {
  value = (value ^ (column + 1) * 0x9E3779B97F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
  value ^= value >> 31;
  return buckets == 1 ? 0 : 1 + static_cast<std::int64_t>(value % static_cast<std::uint64_t>(buckets - 1));
}

inline std::int64_t criteo_bucket_of_text(std::string_view field, std::size_t column, std::int64_t buckets) {
  if (field.empty()) return 0;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 16);
  if (error != std::errc() || end != field.data() + field.size()) value = stable_hash(field);
  return criteo_bucket_of_hash(value, column, buckets);
}

/// Whether a field is a finite number.
inline bool criteo_number(std::string_view field, float& value) {
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size() && std::isfinite(value);
}

inline std::string criteo_field_problem(std::string_view field, const char* problem) {
  return "'" + std::string(field) + "' " + problem;
}

/// One record at a time; a field's problem is an unnamed text that the caller puts a name in front of.
class CriteoBuilder {
 public:
  explicit CriteoBuilder(const CriteoOptions& options) : options_(options) {
    if (options.buckets < 1) throw InvalidArgument("criteo: hash buckets must be at least 1");
  }

  std::string set_label(std::string_view text) {
    if (text != "0" && text != "1") return criteo_field_problem(text, "is not 0 or 1");
    label_now_ = text == "1" ? 1.0F : 0.0F;
    return {};
  }
  std::string set_label(float value) {
    if (value != 0.0F && value != 1.0F) return criteo_field_problem(std::to_string(value), "is not 0 or 1");
    label_now_ = value;
    return {};
  }
  std::string set_integer(std::size_t i, std::string_view text) {
    float value = 0;
    if (!text.empty() && !criteo_number(text, value)) return criteo_field_problem(text, "is not a number");
    return set_integer(i, value);
  }
  std::string set_integer(std::size_t i, float value) {
    if (!std::isfinite(value)) return criteo_field_problem(std::to_string(value), "is not a finite number");
    integers_[i] = transformed(value);
    return {};
  }
  void set_category(std::size_t c, std::string_view text) {
    categories_[c] = criteo_bucket_of_text(text, c, options_.buckets);
  }
  void set_category(std::size_t c, std::int64_t value) {
    categories_[c] = criteo_bucket_of_hash(static_cast<std::uint64_t>(value), c, options_.buckets);
  }
  void end_row() {
    label_.push_back(label_now_);
    dense_.insert(dense_.end(), integers_.begin(), integers_.end());
    sparse_.insert(sparse_.end(), categories_.begin(), categories_.end());
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(label_.size()); }
  void blank_row() {
    label_now_ = 0;
    integers_.fill(0);
    categories_.fill(0);
    end_row();
  }

  /// The table; the builder is empty afterwards, and may be filled again.
  std::shared_ptr<Table> finish(std::int64_t skipped) {
    auto table = std::make_shared<Table>();
    table->rows = rows();
    table->skipped = skipped;
    table->columns.push_back({"dense", Tensor::from<float>(Shape{table->rows, kCriteoIntegers}, dense_)});
    std::vector<TableField> categories;
    for (std::size_t c = 0; c < kCriteoCategories; ++c)
      categories.push_back({"C" + std::to_string(c + 1), 1, options_.buckets});
    table->columns.push_back({"sparse",
                              Tensor::from<std::int64_t>(Shape{table->rows, kCriteoCategories}, sparse_),
                              1.0F, std::move(categories)});
    table->columns.push_back({"label", Tensor::from<float>(Shape{table->rows}, label_)});
    dense_ = {};
    sparse_ = {};
    label_ = {};
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

}  // namespace braid
