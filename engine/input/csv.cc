// CSV and TSV by a schema, and plain text: a line is a record of one field.
#include "base/error.h"
#include "engine/input/line_reader.h"
#include "engine/input/readers.h"

namespace braid {
namespace {

/// Appends one record; returns what is wrong with it, or an empty text.
std::string add_record(const std::vector<std::string_view>& fields, TableBuilder& builder) {
  const auto& columns = builder.columns();
  if (fields.size() != columns.size())
    return "expected " + std::to_string(columns.size()) + " fields, got " + std::to_string(fields.size());
  for (std::size_t c = 0; c < fields.size(); ++c)
    if (const std::string problem = builder.add_text(c, fields[c]); !problem.empty())
      return "column " + std::to_string(c + 1) + " (" + columns[c].name + "): " + problem;
  return {};
}

}  // namespace

std::shared_ptr<const Table> read_csv(const std::vector<std::filesystem::path>& files,
                                      const CsvOptions& options) {
  TableBuilder builder(options.columns);
  BadRecords bad(options.read.max_bad_records);
  RowShard shard(options.read);
  std::vector<std::string_view> fields;
  std::string unquoted;
  for (const auto& file : files) {
    const std::string text = read_text_file(file);
    for_each_line(text, [&](std::string_view line, std::int64_t number) {
      if (line.empty() || (number == 1 && options.header)) return;
      if (!options.comment.empty() && line.starts_with(options.comment)) return;
      if (!shard.takes_next()) return;
      split_fields(line, options.separator, fields, unquoted);
      if (const std::string problem = add_record(fields, builder); problem.empty()) {
        builder.end_row();
      } else {
        builder.drop_row();
        bad.add(file, number, problem);
      }
    });
  }
  return shard.count_into(builder.finish(bad.count()));
}

std::shared_ptr<const Table> read_text_lines(const std::vector<std::filesystem::path>& files,
                                             const TextOptions& options) {
  for (const ColumnSpec& column : options.columns)
    if (column.name != "line")
      throw InvalidArgument("text: a record has the one field 'line', the schema names '" + column.name +
                            "'");
  TableBuilder builder(options.columns);
  BadRecords bad(options.read.max_bad_records);
  RowShard shard(options.read);
  for (const auto& file : files) {
    const std::string text = read_text_file(file);
    for_each_line(text, [&](std::string_view line, std::int64_t number) {
      if (!shard.takes_next()) return;
      for (std::size_t c = 0; c < builder.columns().size(); ++c) {
        const std::string problem = builder.add_text(c, line);
        if (problem.empty()) continue;
        builder.drop_row();
        return bad.add(file, number, problem);
      }
      builder.end_row();
    });
  }
  return shard.count_into(builder.finish(bad.count()));
}

}  // namespace braid
