#include "engine/input/schema/column_spec.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace braid {
namespace {

constexpr std::int64_t kLongestList = std::int64_t{1} << 24;  // values of a row of one column

[[noreturn]] void refuse(const ColumnSpec& column, const std::string& why) {
  throw InvalidArgument("schema column '" + column.name + "': " + why);
}

const char* default_output(ColumnKind kind) {
  switch (kind) {
    case ColumnKind::Numeric:
      return "dense";
    case ColumnKind::Categorical:
      return "sparse";
    case ColumnKind::Weight:
      return kWeightOutput.data();
    default:
      return "label";
  }
}

void check_vocabulary(const ColumnSpec& column) {
  auto words = column.vocabulary;
  std::sort(words.begin(), words.end());
  if (const auto twice = std::adjacent_find(words.begin(), words.end()); twice != words.end())
    refuse(column, "'" + *twice + "' is in the vocabulary twice");
}

void check_outputs(const ColumnSpec& column) {
  const bool is_weight = column.kind == ColumnKind::Weight;
  if (is_weight && (column.length != 1 || column.ragged))
    refuse(column, "a row has one weight, so length must be 1");
  if (column.kind != ColumnKind::Skip && !column.output.empty() &&
      (column.output == kWeightOutput) != is_weight)
    refuse(column, is_weight ? "the output of kind WEIGHT is always 'weight'"
                             : "output 'weight' is for a column of kind WEIGHT");
}

void check_buckets(const ColumnSpec& column) {
  if (!column.is_bucket()) return;
  if (!column.borders.empty() && column.has_part())
    refuse(column, "has borders and a time_part: one says its ids");
  if (!column.vocabulary.empty())
    refuse(column, "a vocabulary is for words, borders and time_part are for numbers");
  if (column.time_part == TimePart::Seconds) refuse(column, "time_part SECONDS is for NUMERIC");
  for (std::size_t i = 0; i < column.borders.size(); ++i)
    if (!std::isfinite(column.borders[i]) || (i > 0 && column.borders[i] <= column.borders[i - 1]))
      refuse(column, "borders must be finite and rise");
}

void check_cross(std::span<const ColumnSpec> before, const ColumnSpec& column) {
  if (column.cross.empty()) return;
  if (column.kind != ColumnKind::Categorical || column.is_list() || column.is_bucket() ||
      !column.field.empty())
    refuse(column, "a cross is CATEGORICAL, has one id a row, and has no field, borders or time_part");
  if (column.buckets < 1 || !column.vocabulary.empty())
    refuse(column, "a cross has buckets, and no vocabulary");
  if (column.cross.size() < 2) refuse(column, "a cross is of two columns or more");
  for (const std::string& name : column.cross) {
    const auto is_it = [&](const ColumnSpec& other) { return other.name == name; };
    const auto of = std::find_if(before.begin(), before.end(), is_it);
    if (of == before.end()) refuse(column, "crosses '" + name + "', which is no column before it");
    if (of->kind != ColumnKind::Categorical || of->is_list() || !of->cross.empty())
      refuse(column, "crosses '" + name + "', which must be CATEGORICAL, of one id a row, and no cross");
  }
}

void check_ragged(std::span<const ColumnSpec> columns, const ColumnSpec& column) {
  if (!column.ragged) return;
  if (column.kind != ColumnKind::Categorical && column.kind != ColumnKind::Numeric)
    refuse(column, "ragged is for CATEGORICAL, and for NUMERIC as the weights of one");
  if (column.kind == ColumnKind::Numeric) {
    const auto owner = std::find_if(columns.begin(), columns.end(),
                                    [&](const ColumnSpec& other) { return other.weights == column.name; });
    if (owner == columns.end())
      refuse(column,
             "a ragged NUMERIC column must be the `weights` of a ragged CATEGORICAL one; models read other "
             "numbers as lists of a `length`");
    if (owner->length != column.length) refuse(column, "its length must be that of '" + owner->name + "'");
    return;
  }
  if (column.weights.empty()) return;
  if (column.weight_separator != 0)
    refuse(column, "has weights and a weight_separator: one says its weights");
  const auto of = std::find_if(columns.begin(), columns.end(),
                               [&](const ColumnSpec& other) { return other.name == column.weights; });
  if (of == columns.end()) refuse(column, "its weights '" + column.weights + "' are no column of the schema");
  if (of->kind != ColumnKind::Numeric || !of->ragged)
    refuse(column, "its weights '" + column.weights + "' must be a ragged NUMERIC column");
  const auto users = std::count_if(columns.begin(), columns.end(),
                                   [&](const ColumnSpec& other) { return other.weights == column.weights; });
  if (users > 1) refuse(column, "its weights '" + column.weights + "' are those of another column too");
}

/// What numbers become: a value that is missing is one, too.
void check_scaling(const ColumnSpec& column) {
  if (column.scale == 0) refuse(column, "scale must not be 0");
  if (!std::isfinite(column.scale) || !std::isfinite(column.shift) || !std::isfinite(column.missing))
    refuse(column, "scale, shift and missing must be finite numbers");
  const double missing = column.log1p ? std::log1p(std::max(column.missing, 0.0)) : column.missing;
  if (!std::isfinite(static_cast<float>((missing - column.shift) / column.scale)))
    refuse(column, "missing, behind shift and scale, is beyond the range of float");
}

void check_one(const ColumnSpec& column) {
  if (column.length < (column.ragged ? 0 : 1)) refuse(column, "length must be at least 1");
  if (column.length > kLongestList)
    refuse(column, "length is " + std::to_string(column.length) + ", a row has at most " +
                       std::to_string(kLongestList) + " values of a column");
  if (column.buckets < 0) refuse(column, "buckets must not be negative");
  if (column.kind == ColumnKind::Categorical && column.ids() < 1)
    refuse(column, "buckets must be at least 1, or there must be a vocabulary");
  if (column.kind == ColumnKind::Numeric) check_scaling(column);
  if (column.kind == ColumnKind::Numeric && column.has_part() && column.time_part != TimePart::Seconds)
    refuse(column, "of a NUMERIC column time_part is SECONDS; the other parts are CATEGORICAL");
  if (is_float_kind(column.kind) && !column.missing_word.empty())
    refuse(column, "missing_word is for CATEGORICAL and CLASS; numbers have missing");
  if (is_float_kind(column.kind) && !column.vocabulary.empty())
    refuse(column, "a vocabulary is for CATEGORICAL and CLASS");
}

}  // namespace

std::string field_of(const ColumnSpec& column) {
  if (!column.cross.empty()) return {};
  return column.field.empty() ? column.name : column.field;
}

std::string output_name(const ColumnSpec& column) {
  const std::string output = column.output.empty() ? default_output(column.kind) : column.output;
  return column.ragged ? output + "/" + plain_name(column.name) : output;
}

bool is_float_kind(ColumnKind kind) {
  return kind == ColumnKind::Numeric || kind == ColumnKind::Label || kind == ColumnKind::Weight;
}

std::string plain_name(std::string_view name) {
  std::string clean;
  for (const char c : name) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    clean += is_word || c == '.' || ((c == '_' || c == '-') && !clean.empty()) ? c : '_';
  }
  if (clean.starts_with('_')) clean.insert(0, "column");
  return clean;
}

std::int64_t ColumnSpec::ids() const {
  const std::int64_t filler = length > 1 && !ragged ? 1 : 0;
  if (!borders.empty()) return std::ssize(borders) + 2 + filler;  // the last one is what is missing
  if (has_part()) return ids_of_part(time_part) + 1 + filler;
  return std::ssize(vocabulary) + buckets + filler;
}

void check_columns(std::span<const ColumnSpec> columns) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].kind == ColumnKind::Skip) continue;
    check_one(columns[c]);
    check_outputs(columns[c]);
    check_vocabulary(columns[c]);
    check_buckets(columns[c]);
    check_cross(columns.first(c), columns[c]);
    check_ragged(columns, columns[c]);
  }
}

}  // namespace braid
