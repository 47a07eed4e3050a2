#include "engine/input/schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/init.h"

namespace braid {
namespace {

bool parse_number(std::string_view text, double& value) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

bool is_missing(std::string_view text) { return text.empty() || text == "?"; }

bool is_float(ColumnKind kind) {
  return kind == ColumnKind::Numeric || kind == ColumnKind::Label || kind == ColumnKind::Weight;
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

std::string quoted(std::string_view text, std::string_view problem) {
  return "'" + std::string(text) + "' " + std::string(problem);
}

}  // namespace

std::string output_name(const ColumnSpec& column) {
  return column.output.empty() ? default_output(column.kind) : column.output;
}

std::int64_t ColumnSpec::ids() const {
  return static_cast<std::int64_t>(vocabulary.size()) + buckets + (length > 1 ? 1 : 0);
}

TableBuilder::TableBuilder(std::vector<ColumnSpec> columns) : columns_(std::move(columns)) {
  for (const ColumnSpec& column : columns_) {
    check(column);
    column_output_.push_back(column.kind == ColumnKind::Skip ? SIZE_MAX : output_of(column));
    auto& places = vocabulary_.emplace_back();
    for (const std::string& word : column.vocabulary)
      places.emplace(word, static_cast<std::int64_t>(places.size()));
  }
  if (outputs_.empty()) throw InvalidArgument("schema: every column is skipped");
}

void TableBuilder::check(const ColumnSpec& column) const {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument("schema column '" + column.name + "': " + why);
  };
  if (column.length < 1) refuse("length must be at least 1");
  if (column.kind == ColumnKind::Categorical && column.ids() < 1)
    refuse("buckets must be at least 1, or there must be a vocabulary");
  if (column.buckets < 0) refuse("buckets must not be negative");
  if (column.kind == ColumnKind::Numeric && column.scale == 0) refuse("scale must not be 0");
  if (is_float(column.kind) && !column.missing_word.empty())
    refuse("missing_word is for CATEGORICAL and CLASS; numbers have missing");
  if (is_float(column.kind) && !column.vocabulary.empty())
    refuse("a vocabulary is for CATEGORICAL and CLASS");
  const bool is_weight = column.kind == ColumnKind::Weight;
  if (is_weight && column.length != 1) refuse("a row has one weight, so length must be 1");
  if (column.kind != ColumnKind::Skip && !column.output.empty() &&
      (column.output == kWeightOutput) != is_weight)
    refuse(is_weight ? "the output of kind WEIGHT is always 'weight'"
                     : "output 'weight' is for a column of kind WEIGHT");
  auto words = column.vocabulary;
  std::sort(words.begin(), words.end());
  if (const auto twice = std::adjacent_find(words.begin(), words.end()); twice != words.end())
    refuse(quoted(*twice, "is in the vocabulary twice"));
}

std::size_t TableBuilder::output_of(const ColumnSpec& column) {
  const std::string name = output_name(column);
  const TableField field{column.name, column.length,
                         column.kind == ColumnKind::Categorical ? column.ids() : 0};
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
    if (output.is_float != is_float(column.kind))
      throw InvalidArgument("schema column '" + column.name + "': output '" + name +
                            "' has columns of another type");
    output.width += column.length;
    output.flat = false;
    output.fields.push_back(field);
    return i;
  }
  outputs_.push_back(
      {name, is_float(column.kind), may_be_flat && column.length == 1, column.length, {field}, {}, {}});
  return outputs_.size() - 1;
}

std::string TableBuilder::add_id(std::size_t column, std::string_view text) {
  const ColumnSpec& spec = columns_[column];
  auto& ids = outputs_[column_output_[column]].ints;
  const std::int64_t first = spec.length > 1 && spec.kind == ColumnKind::Categorical ? 1 : 0;
  if (!spec.vocabulary.empty()) {
    key_.assign(text);
    if (const auto at = vocabulary_[column].find(key_); at != vocabulary_[column].end()) {
      ids.push_back(first + at->second);
      return {};
    }
  }
  if (spec.kind == ColumnKind::Class || spec.buckets == 0) return quoted(text, "is not in the vocabulary");
  key_.assign(spec.name).append("=").append(text);
  const auto hashed = stable_hash(key_) % static_cast<std::uint64_t>(spec.buckets);
  ids.push_back(first + static_cast<std::int64_t>(spec.vocabulary.size() + hashed));
  return {};
}

std::string TableBuilder::add_number(std::size_t column, double value) {
  const ColumnSpec& spec = columns_[column];
  if (spec.kind == ColumnKind::Numeric) {
    if (spec.log1p) value = std::log1p(std::max(value, 0.0));
    value = (value - spec.shift) / spec.scale;
  }
  if (spec.kind == ColumnKind::Weight && value < 0) return "a weight must not be negative";
  outputs_[column_output_[column]].floats.push_back(static_cast<float>(value));
  return {};
}

std::string TableBuilder::add_one_text(std::size_t column, std::string_view text) {
  const ColumnSpec& spec = columns_[column];
  if (text.empty() && !is_float(spec.kind)) text = spec.missing_word;
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
      outputs_[column_output_[column]].ints.push_back(label);
      return {};
    }
    case ColumnKind::Label:
      if (!spec.positive.empty()) return add_number(column, text.starts_with(spec.positive) ? 1 : 0);
      break;
    case ColumnKind::Numeric:
      if (is_missing(text)) return add_number(column, spec.missing);
      break;
    case ColumnKind::Weight:
      break;
  }
  if (!parse_number(text, value)) return quoted(text, "is not a number");
  return add_number(column, value);
}

void TableBuilder::pad(std::size_t column, std::size_t have) {
  const ColumnSpec& spec = columns_[column];
  Output& output = outputs_[column_output_[column]];
  for (auto left = static_cast<std::size_t>(spec.length) - have; left > 0; --left) {
    if (output.is_float)
      add_number(column, spec.missing);
    else
      output.ints.push_back(0);
  }
}

std::string TableBuilder::add_text(std::size_t column, std::string_view field) {
  const ColumnSpec& spec = columns_[column];
  if (spec.kind == ColumnKind::Skip) return {};
  if (spec.length == 1) return add_one_text(column, field);
  std::size_t have = 0;
  while (!field.empty() && have < static_cast<std::size_t>(spec.length)) {
    const std::size_t end = std::min(field.find(spec.list_separator), field.size());
    const std::string_view item = field.substr(0, end);
    field.remove_prefix(std::min(end + 1, field.size()));
    if (item.empty()) continue;
    if (std::string problem = add_one_text(column, item); !problem.empty()) return problem;
    ++have;
  }
  pad(column, have);
  return {};
}

std::string TableBuilder::add_values(std::size_t column, const FieldValues& values) {
  const ColumnSpec& spec = columns_[column];
  if (spec.kind == ColumnKind::Skip) return {};
  const auto room = static_cast<std::size_t>(spec.length);
  if (spec.length == 1 && values.size() > 1)
    return "has " + std::to_string(values.size()) + " values, the schema says 1";
  if (values.size() == 0 && spec.length == 1) {
    if (spec.kind == ColumnKind::Numeric) return add_number(column, spec.missing);
    if (spec.kind == ColumnKind::Categorical || !spec.missing_word.empty()) return add_one_text(column, {});
    return "has no value";
  }
  std::size_t have = 0;
  std::string problem;
  for (std::size_t i = 0; i < values.texts.size() && have < room && problem.empty(); ++i, ++have)
    problem = add_one_text(column, values.texts[i]);
  for (std::size_t i = 0; i < values.ints.size() && have < room && problem.empty(); ++i, ++have) {
    const std::int64_t value = values.ints[i];
    if (spec.kind == ColumnKind::Class && spec.vocabulary.empty())
      outputs_[column_output_[column]].ints.push_back(value);
    else if (is_float(spec.kind) && spec.positive.empty())
      problem = add_number(column, static_cast<double>(value));
    else
      problem = add_one_text(column, std::to_string(value));
  }
  for (std::size_t i = 0; i < values.floats.size() && have < room && problem.empty(); ++i, ++have) {
    if (!is_float(spec.kind)) return "has floats, an id needs integers or bytes";
    if (!std::isfinite(values.floats[i])) return std::to_string(values.floats[i]) + " is not a finite number";
    problem = add_number(column, values.floats[i]);
  }
  if (problem.empty()) pad(column, have);
  return problem;
}

void TableBuilder::drop_row() {
  for (Output& output : outputs_) {
    output.floats.resize(output.is_float ? static_cast<std::size_t>(rows_ * output.width) : 0);
    output.ints.resize(output.is_float ? 0 : static_cast<std::size_t>(rows_ * output.width));
  }
}

void TableBuilder::add_blank(std::size_t column) {
  if (columns_[column].kind == ColumnKind::Skip) return;
  Output& output = outputs_[column_output_[column]];
  const auto length = static_cast<std::size_t>(columns_[column].length);
  if (output.is_float)
    output.floats.insert(output.floats.end(), length, 0.0F);
  else
    output.ints.insert(output.ints.end(), length, 0);
}

void TableBuilder::blank_row() {
  drop_row();
  for (std::size_t c = 0; c < columns_.size(); ++c) add_blank(c);
  end_row();
}

std::shared_ptr<Table> TableBuilder::finish(std::int64_t skipped) {
  auto table = std::make_shared<Table>();
  table->rows = rows_;
  table->skipped = skipped;
  for (Output& output : outputs_) {
    const Shape shape = output.flat ? Shape{rows_} : Shape{rows_, output.width};
    table->columns.push_back({output.name,
                              output.is_float ? Tensor::from<float>(shape, output.floats)
                                              : Tensor::from<std::int64_t>(shape, output.ints),
                              1.0F, output.fields});
    output.floats = {};
    output.ints = {};
  }
  rows_ = 0;
  return table;
}

}  // namespace braid
