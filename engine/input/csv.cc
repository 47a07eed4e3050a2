// CSV and TSV by a schema, and plain text: a line is a record of one field.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "engine/input/field_reader.h"
#include "engine/input/line_reader.h"
#include "engine/input/readers.h"

namespace braid {
namespace {

/// Which field of a line each column of the schema is.
struct Fields {
  std::vector<std::size_t> of_column;
  std::size_t count = 0;  // of a line
};

Fields in_order(std::size_t columns) {
  Fields fields{std::vector<std::size_t>(columns), columns};
  std::iota(fields.of_column.begin(), fields.of_column.end(), std::size_t{0});
  return fields;
}

/// Columns are found by the names of the header; where it has none of them, they are in the order of the
/// schema. Throws: InvalidArgument for a header with some of them only, or with one of them twice.
Fields named_by(const std::vector<std::string_view>& header, const std::vector<ColumnSpec>& columns,
                const std::string& where) {
  Fields fields = in_order(columns.size());
  const std::string* missing = nullptr;
  bool any = false;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].kind == ColumnKind::Skip) continue;
    const auto found = std::find(header.begin(), header.end(), columns[c].name);
    if (found == header.end()) {
      missing = missing ? missing : &columns[c].name;
      continue;
    }
    if (std::find(found + 1, header.end(), columns[c].name) != header.end())
      throw InvalidArgument(where + "the header has two columns '" + columns[c].name + "'");
    any = true;
    fields.of_column[c] = static_cast<std::size_t>(found - header.begin());
  }
  if (!any) return in_order(columns.size());
  if (missing) {
    std::string names;
    for (const std::string_view name : header) names.append(names.empty() ? "" : ", ").append(name);
    throw InvalidArgument(where + "the header has no column '" + *missing + "', but " + names);
  }
  fields.count = header.size();
  return fields;
}

/// Appends one record; returns what is wrong with it, or an empty text.
std::string add_record(const FieldReader& record, const Fields& fields, TableBuilder& builder) {
  if (!record.problem().empty()) return record.problem();
  const auto& texts = record.fields();
  const auto& columns = builder.columns();
  if (texts.size() != fields.count)
    return "expected " + std::to_string(fields.count) + " fields, got " + std::to_string(texts.size());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].kind == ColumnKind::Skip) continue;
    const std::size_t field = fields.of_column[c];
    if (const std::string problem = builder.add_text(c, texts[field]); !problem.empty())
      return "column " + std::to_string(field + 1) + " (" + columns[c].name + "): " + problem;
  }
  return {};
}

}  // namespace

std::shared_ptr<const Table> read_csv(const std::vector<std::filesystem::path>& files,
                                      const CsvOptions& options) {
  TableBuilder builder(options.columns);
  BadRecords bad(options.read.max_bad_records);
  RowShard shard(options.read);
  for (const auto& file : files) {
    const std::string text = read_text_file(file);
    FieldReader record(text, options.separator, options.comment);
    Fields fields = in_order(builder.columns().size());
    if (options.header && record.next())
      fields = named_by(record.fields(), builder.columns(),
                        "'" + file.string() + "' line " + std::to_string(record.line()) + ": ");
    while (record.next()) {
      if (!shard.takes_next()) continue;
      if (const std::string problem = add_record(record, fields, builder); problem.empty()) {
        builder.end_row();
      } else {
        builder.drop_row();
        bad.add(file, record.line(), problem);
      }
    }
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
    for_each_line(without_byte_order_mark(text), [&](std::string_view line, std::int64_t number) {
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
