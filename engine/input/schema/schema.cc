#include "engine/input/schema/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/init.h"
#include "engine/input/formats/foreign.h"

namespace braid {
namespace {

bool parse_number(std::string_view text, double& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) value = strtod_in_c(std::string(text).c_str(), nullptr);
  return error != std::errc::invalid_argument && end == text.data() + text.size() && std::isfinite(value);
}

bool is_missing(std::string_view text) { return text.empty() || text == "?"; }

std::string beyond_float(double value) { return fmt::format("{:g} is beyond the range of float", value); }

std::string quoted(std::string_view text, std::string_view problem) {
  return "'" + std::string(text) + "' " + std::string(problem);
}

/// Numbers and borders meet as floats, as which some formats and all statistics have them: 0.7 is 0.7
/// everywhere. Larger ones would lose their units.
double as_compared(double number) {
  constexpr double kWholeFloats = 1 << 24;
  return std::abs(number) < kWholeFloats ? static_cast<double>(static_cast<float>(number)) : number;
}

/// What columns hash under: those that share a table give a word one id.
const std::string& hash_name(const ColumnSpec& column) {
  return column.table.shared.empty() ? column.name : column.table.shared;
}

}  // namespace

std::uint64_t cross_hash(std::uint64_t hash, std::uint64_t value) {
  const std::uint64_t mixed = (hash ^ value) * 0xBF58476D1CE4E5B9ULL;
  return mixed ^ mixed >> 31;
}

TableBuilder::TableBuilder(std::vector<ColumnSpec> columns)
    : columns_(std::move(columns)),
      partner_(columns_.size(), kNone),
      crossed_(columns_.size()),
      hashed_(columns_.size()),
      hashes_(columns_.size()) {
  check_columns(columns_);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    ColumnSpec& column = columns_[c];
    std::ranges::transform(column.borders, column.borders.begin(), as_compared);
    const bool has_output =
        column.kind != ColumnKind::Skip && !(column.ragged && column.kind == ColumnKind::Numeric);
    column_output_.push_back(has_output ? output_of(column) : kNone);
    auto& places = vocabulary_.emplace_back();
    for (const std::string& word : column.vocabulary)
      places.emplace(word, static_cast<std::int64_t>(places.size()));
    for (const std::string& name : column.cross)
      for (std::size_t of = 0; of < c; ++of)
        if (columns_[of].name == name && columns_[of].kind != ColumnKind::Skip) {
          crossed_[c].push_back(of);
          hashed_[of] = true;
          break;
        }
  }
  find_weights();
  if (outputs_.empty()) throw InvalidArgument("schema: every column is skipped");
}

void TableBuilder::find_weights() {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].kind == ColumnKind::Skip || columns_[c].weights.empty()) continue;
    for (std::size_t w = 0; w < columns_.size(); ++w)
      if (columns_[w].name == columns_[c].weights && columns_[w].kind == ColumnKind::Numeric) {
        partner_[c] = w;
        partner_[w] = c;
        column_output_[w] = column_output_[c];
      }
  }
}

std::size_t TableBuilder::ragged_output_of(const ColumnSpec& column) {
  const std::string name = output_name(column);
  for (const Output& output : outputs_)
    if (output.name == name)
      throw InvalidArgument("schema column '" + column.name + "': another column is '" + name + "' already");
  Output output;
  output.name = name;
  output.is_float = false;
  output.ragged = true;
  output.weighted = !column.weights.empty() || column.weight_separator != 0;
  output.fields.push_back({column.name, column.length, column.ids(), false, column.table});
  output.batch_values = column.batch_ids;
  outputs_.push_back(std::move(output));
  ragged_.push_back(outputs_.size() - 1);
  return outputs_.size() - 1;
}

std::size_t TableBuilder::output_of(const ColumnSpec& column) {
  if (column.ragged) return ragged_output_of(column);
  const std::string name = output_name(column);
  TableField field{column.name, column.length, column.kind == ColumnKind::Categorical ? column.ids() : 0};
  field.table = column.table;
  const bool is_weight = column.kind == ColumnKind::Weight;
  const bool may_be_flat = column.kind == ColumnKind::Label || column.kind == ColumnKind::Class || is_weight;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    if (output.name != name) continue;
    if (is_weight)
      throw InvalidArgument("schema column '" + column.name + "': there is a column of weights already");
    if (column.output.empty() && may_be_flat)
      throw InvalidArgument("schema column '" + column.name +
                            "': there is a label already; a second one needs an output of its own");
    if (output.is_float != is_float_kind(column.kind) || output.ragged)
      throw InvalidArgument("schema column '" + column.name + "': output '" + name +
                            "' has columns of another type");
    output.width += column.length;
    output.flat = false;
    output.fields.push_back(field);
    return i;
  }
  Output output;
  output.name = name;
  output.is_float = is_float_kind(column.kind);
  output.flat = may_be_flat && column.length == 1;
  output.width = column.length;
  output.fields.push_back(field);
  outputs_.push_back(std::move(output));
  return outputs_.size() - 1;
}

void TableBuilder::push_id(std::size_t column, std::int64_t place) {
  const ColumnSpec& spec = columns_[column];
  const bool filled = spec.length > 1 && !spec.ragged && spec.kind == ColumnKind::Categorical;
  output(column).ints.push_back(place + (filled ? 1 : 0));
}

std::string TableBuilder::add_id(std::size_t column, std::string_view text) {
  const ColumnSpec& spec = columns_[column];
  std::int64_t place = -1;
  if (!spec.vocabulary.empty()) {
    key_.assign(text);
    if (const auto at = vocabulary_[column].find(key_); at != vocabulary_[column].end()) place = at->second;
  }
  if (place < 0 && (spec.kind == ColumnKind::Class || spec.buckets == 0))
    return quoted(text, "is not in the vocabulary");
  if (place < 0 || hashed_[column]) {
    key_.assign(hash_name(spec)).append("=").append(text);
    hashes_[column] = stable_hash(key_);
  }
  if (place < 0)
    place = std::ssize(spec.vocabulary) +
            static_cast<std::int64_t>(hashes_[column] % static_cast<std::uint64_t>(spec.buckets));
  push_id(column, place);
  return {};
}

void TableBuilder::push_bucket(std::size_t column, double value) {
  const ColumnSpec& spec = columns_[column];
  const std::int64_t place =
      spec.has_part() ? part_of_time(spec.time_part, value)
                      : std::upper_bound(spec.borders.begin(), spec.borders.end(), as_compared(value)) -
                            spec.borders.begin();
  if (hashed_[column]) hashes_[column] = stable_hash(hash_name(spec) + "=" + std::to_string(place));
  push_id(column, place);
}

void TableBuilder::push_missing_bucket(std::size_t column) {
  const ColumnSpec& spec = columns_[column];
  const std::int64_t last = spec.ids() - 1 - (spec.is_list() && !spec.ragged ? 1 : 0);
  if (hashed_[column]) hashes_[column] = stable_hash(hash_name(spec) + "=" + std::to_string(last));
  push_id(column, last);
}

std::string TableBuilder::add_bucket(std::size_t column, std::string_view text) {
  if (is_missing(text)) return push_missing_bucket(column), std::string();
  if (columns_[column].has_part()) {
    const std::optional<double> seconds = seconds_of_text(text);
    if (!seconds) return quoted(text, "is not a time");
    return push_bucket(column, *seconds), std::string();
  }
  double value = 0;
  if (!parse_number(text, value)) return not_a_number(text);
  return push_bucket(column, value), std::string();
}

std::string TableBuilder::add_cross(std::size_t column) {
  const ColumnSpec& spec = columns_[column];
  std::uint64_t hash = stable_hash(spec.name + "=");
  for (const std::size_t of : crossed_[column]) hash = cross_hash(hash, hashes_[of]);
  push_id(column, static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(spec.buckets)));
  return {};
}

std::string TableBuilder::add_number(std::size_t column, double value) {
  const ColumnSpec& spec = columns_[column];
  if (spec.kind == ColumnKind::Numeric) {
    if (spec.log1p) value = std::log1p(std::max(value, 0.0));
    value = (value - spec.shift) / spec.scale;
  }
  if (spec.kind == ColumnKind::Weight && value < 0) return "a weight must not be negative";
  const auto stored = static_cast<float>(value);
  if (!std::isfinite(stored)) return beyond_float(value);
  output(column).floats.push_back(stored);
  return {};
}

std::string TableBuilder::add_one_text(std::size_t column, std::string_view text) {
  const ColumnSpec& spec = columns_[column];
  if (spec.is_bucket()) return add_bucket(column, text);
  if (text.empty() && !is_float_kind(spec.kind)) text = spec.missing_word;
  double value = 0;
  switch (spec.kind) {
    case ColumnKind::Skip:
      return {};
    case ColumnKind::Categorical:
      return add_id(column, text);
    case ColumnKind::Class: {
      if (!spec.vocabulary.empty()) return add_id(column, text);
      std::int64_t label = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
      if (error != std::errc() || end != text.data() + text.size()) return quoted(text, "is not an integer");
      output(column).ints.push_back(label);
      return {};
    }
    case ColumnKind::Label:
      if (!spec.positive.empty() && text.empty()) return "a label is missing";
      if (!spec.positive.empty()) return add_number(column, text.starts_with(spec.positive) ? 1 : 0);
      break;
    case ColumnKind::Numeric:
      if (is_missing(text)) return add_number(column, spec.missing);
      if (spec.has_part()) {
        const std::optional<double> seconds = seconds_of_text(text);
        return seconds ? add_number(column, *seconds) : quoted(text, "is not a time");
      }
      break;
    case ColumnKind::Weight:
      break;
  }
  const bool is_numeric = spec.kind == ColumnKind::Numeric;
  if (text.empty() && !is_numeric)
    return spec.kind == ColumnKind::Label ? "a label is missing" : "a weight is missing";
  if (!parse_number(text, value)) return not_a_number(text, is_numeric);
  return add_number(column, value);
}

std::size_t TableBuilder::room(std::size_t column) const {
  const auto most = static_cast<std::size_t>(columns_[column].length);
  return most == 0 ? SIZE_MAX : most;
}

void TableBuilder::pad(std::size_t column, std::size_t have) {
  const ColumnSpec& spec = columns_[column];
  if (spec.ragged) return;
  for (auto left = static_cast<std::size_t>(spec.length) - have; left > 0; --left) {
    if (output(column).is_float)
      add_number(column, spec.missing);
    else
      output(column).ints.push_back(0);
  }
}

std::string TableBuilder::check_weights(std::size_t column) const {
  const std::size_t other = partner_[column];
  if (other == kNone || other > column) return {};  // the later one is checked
  const Output& both = outputs_[column_output_[column]];
  if (both.ints.size() == both.floats.size()) return {};
  const std::size_t before = both.ends.empty() ? 0 : static_cast<std::size_t>(both.ends.back());
  const bool is_ids = columns_[column].kind == ColumnKind::Categorical;
  return "there are " + std::to_string(both.floats.size() - before) + " weights for " +
         std::to_string(both.ints.size() - before) + " ids (" + (is_ids ? "weights" : "ids") + " are '" +
         columns_[other].name + "')";
}

/// "a:0.5", or "a" of weight 1.
std::string TableBuilder::add_weighted(std::size_t column, std::string_view item) {
  const std::size_t at = item.rfind(columns_[column].weight_separator);
  double weight = 1;
  if (at != std::string_view::npos) {
    if (!parse_number(item.substr(at + 1), weight)) return quoted(item.substr(at + 1), "is not a weight");
    if (!std::isfinite(static_cast<float>(weight))) return beyond_float(weight);
    item = item.substr(0, at);
  }
  output(column).floats.push_back(static_cast<float>(weight));
  return add_one_text(column, item);
}

std::string TableBuilder::add_items(std::size_t column, std::string_view field) {
  const ColumnSpec& spec = columns_[column];
  std::size_t have = 0;
  while (!field.empty() && have < room(column)) {
    const std::size_t end = std::min(field.find(spec.list_separator), field.size());
    const std::string_view item = field.substr(0, end);
    field.remove_prefix(std::min(end + 1, field.size()));
    if (item.empty() && (spec.kind != ColumnKind::Numeric || spec.ragged)) continue;
    std::string problem = spec.weight_separator ? add_weighted(column, item) : add_one_text(column, item);
    if (!problem.empty()) return problem;
    ++have;
  }
  pad(column, have);
  return check_weights(column);
}

std::string TableBuilder::add_text(std::size_t column, std::string_view field) {
  const ColumnSpec& spec = columns_[column];
  if (spec.kind == ColumnKind::Skip) return {};
  if (!spec.cross.empty()) return add_cross(column);
  return spec.is_list() ? add_items(column, field) : add_one_text(column, field);
}

std::string TableBuilder::add_int(std::size_t column, std::int64_t value, bool is_unsigned) {
  const ColumnSpec& spec = columns_[column];
  is_unsigned = is_unsigned && value < 0;
  const auto number =
      is_unsigned ? static_cast<double>(static_cast<std::uint64_t>(value)) : static_cast<double>(value);
  if (spec.is_bucket())
    return push_bucket(column, spec.has_part() ? seconds_of_number(number) : number), std::string();
  if (spec.kind == ColumnKind::Class && spec.vocabulary.empty() && !is_unsigned)
    return output(column).ints.push_back(value), std::string();
  if (!is_float_kind(spec.kind) || !spec.positive.empty())
    return add_one_text(
        column, is_unsigned ? std::to_string(static_cast<std::uint64_t>(value)) : std::to_string(value));
  return add_number(column, spec.has_part() ? seconds_of_number(number) : number);
}

std::string TableBuilder::add_float(std::size_t column, double value) {
  const ColumnSpec& spec = columns_[column];
  if (!is_float_kind(spec.kind) && !spec.is_bucket()) return "has floats, an id needs integers or bytes";
  if (spec.is_bucket() && std::isnan(value)) return push_missing_bucket(column), std::string();
  if (!std::isfinite(value)) return std::to_string(value) + " is not a finite number";
  const double number = spec.has_part() ? seconds_of_number(value) : value;
  if (spec.is_bucket()) return push_bucket(column, number), std::string();
  return add_number(column, number);
}

std::string TableBuilder::add_values(std::size_t column, const FieldValues& values) {
  const ColumnSpec& spec = columns_[column];
  if (spec.kind == ColumnKind::Skip) return {};
  if (!spec.cross.empty()) return add_cross(column);
  if (!spec.is_list() && values.size() > 1)
    return "has " + std::to_string(values.size()) + " values, the schema says 1";
  if (values.size() == 0 && !spec.is_list()) {
    if (spec.kind == ColumnKind::Numeric) return add_number(column, spec.missing);
    if (spec.kind == ColumnKind::Categorical || !spec.missing_word.empty()) return add_one_text(column, {});
    return "has no value";
  }
  // As lists of text are written where records have no lists.
  if (spec.is_list() && !values.are_items && values.texts.size() == 1 && values.size() == 1 &&
      values.texts[0].find(spec.list_separator) != std::string_view::npos)
    return add_items(column, values.texts[0]);
  std::size_t have = 0;
  std::string problem;
  const auto more = [&](std::size_t i, std::size_t count) {
    return i < count && have < room(column) && problem.empty();
  };
  for (std::size_t i = 0; more(i, values.texts.size()); ++i, ++have)
    problem =
        spec.weight_separator ? add_weighted(column, values.texts[i]) : add_one_text(column, values.texts[i]);
  for (std::size_t i = 0; more(i, values.ints.size()); ++i, ++have) {
    problem = add_int(column, values.ints[i], values.is_unsigned);
    if (spec.weight_separator) output(column).floats.push_back(1.0F);
  }
  for (std::size_t i = 0; more(i, values.floats.size()); ++i, ++have)
    problem = add_float(column, values.floats[i]);
  for (std::size_t i = 0; more(i, values.doubles.size()); ++i, ++have)
    problem = spec.kind == ColumnKind::Numeric && std::isnan(values.doubles[i])
                  ? add_number(column, spec.missing)
                  : add_float(column, values.doubles[i]);
  if (!problem.empty()) return problem;
  pad(column, have);
  return check_weights(column);
}

}  // namespace braid
