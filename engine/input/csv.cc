// CSV by a schema. Categorical fields are hashed: stable_hash("<column>=<text>") mod buckets, so equal texts
// of two columns differ.
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/init.h"
#include "engine/input/line_reader.h"
#include "engine/input/readers.h"

namespace braid {
namespace {

bool parse_number(std::string_view text, double& value) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

struct Builder {
  std::vector<float> dense, label;
  std::vector<std::int64_t> sparse;
  std::int64_t rows = 0;
};

/// Appends one record; returns what is wrong with it, or an empty text.
std::string add_record(const std::vector<std::string_view>& fields, const CsvOptions& options, Builder& out,
                       std::string& key) {
  if (fields.size() != options.columns.size())
    return "expected " + std::to_string(options.columns.size()) + " fields, got " +
           std::to_string(fields.size());
  const auto dense = out.dense.size(), label = out.label.size(), sparse = out.sparse.size();
  for (std::size_t c = 0; c < fields.size(); ++c) {
    const CsvColumn& column = options.columns[c];
    const std::string_view field = fields[c];
    std::string problem;
    double value = 0;
    switch (column.kind) {
      case ColumnKind::Skip:
        break;
      case ColumnKind::Categorical:
        key.assign(column.name).append("=").append(field);
        out.sparse.push_back(
            static_cast<std::int64_t>(stable_hash(key) % static_cast<std::uint64_t>(column.buckets)));
        break;
      case ColumnKind::Label:
        if (!column.positive.empty())
          value = field.starts_with(column.positive) ? 1 : 0;
        else if (!parse_number(field, value))
          problem = "is not a number";
        out.label.push_back(static_cast<float>(value));
        break;
      case ColumnKind::Numeric:
        if (field.empty() || field == "?")
          value = column.missing;
        else if (!parse_number(field, value))
          problem = "is not a number";
        if (column.log1p) value = std::log1p(std::max(value, 0.0));
        out.dense.push_back(static_cast<float>((value - column.shift) / column.scale));
        break;
    }
    if (!problem.empty()) {
      out.dense.resize(dense);
      out.label.resize(label);
      out.sparse.resize(sparse);
      return "column " + std::to_string(c + 1) + " (" + column.name + "): '" + std::string(field) + "' " +
             problem;
    }
  }
  ++out.rows;
  return {};
}

}  // namespace

std::shared_ptr<const Table> read_csv(const std::vector<std::filesystem::path>& files,
                                      const CsvOptions& options) {
  std::int64_t numeric = 0, categorical = 0, labels = 0;
  for (const auto& column : options.columns) {
    numeric += column.kind == ColumnKind::Numeric;
    categorical += column.kind == ColumnKind::Categorical;
    labels += column.kind == ColumnKind::Label;
    if (column.kind == ColumnKind::Categorical && column.buckets < 1)
      throw InvalidArgument("csv column '" + column.name + "': buckets must be at least 1");
    if (column.kind == ColumnKind::Numeric && column.scale == 0)
      throw InvalidArgument("csv column '" + column.name + "': scale must not be 0");
  }
  if (labels != 1)
    throw InvalidArgument("csv: the schema needs exactly one LABEL column, it has " + std::to_string(labels));
  Builder builder;
  BadRecords bad(options.max_bad_records);
  std::vector<std::string_view> fields;
  std::string unquoted, key;
  for (const auto& file : files) {
    const std::string text = read_text_file(file);
    for_each_line(text, [&](std::string_view line, std::int64_t number) {
      if (line.empty() || (number == 1 && options.header)) return;
      if (!options.comment.empty() && line.starts_with(options.comment)) return;
      split_fields(line, options.separator, fields, unquoted);
      if (const std::string problem = add_record(fields, options, builder, key); !problem.empty())
        bad.add(file, number, problem);
    });
  }
  auto table = std::make_shared<Table>();
  table->rows = builder.rows;
  table->skipped = bad.count();
  if (numeric > 0)
    table->columns.push_back({"dense", Tensor::from<float>(Shape{builder.rows, numeric}, builder.dense)});
  if (categorical > 0)
    table->columns.push_back(
        {"sparse", Tensor::from<std::int64_t>(Shape{builder.rows, categorical}, builder.sparse)});
  table->columns.push_back({"label", Tensor::from<float>(Shape{builder.rows}, builder.label)});
  return table;
}

}  // namespace braid
