// Reads a file as training does and prints its table as JSON, for tests that compare it with other readers'.
//   print_rows FORMAT FILE COLUMN...   FORMAT: csv, csv_header, text, parquet
//   COLUMN: name:kind[:length]   kind: n numeric (missing is -777), c categorical (2^61 buckets), l label, k
//   class, w weight; length r: ragged
// Two lines: the file whole, and in blocks of a stream. An error is {"error": "Type: message"}.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/input/formats/parquet_files.h"
#include "engine/input/formats/readers.h"
#include "engine/input/stream/row_blocks.h"

namespace braid {
namespace {

using nlohmann::json;

ColumnSpec column_of(const std::string& text) {
  const std::size_t name = text.find(':');
  ColumnSpec column{.name = text.substr(0, name), .missing = -777};
  const std::string kind = text.substr(name + 1, 1), length = text.substr(std::min(name + 3, text.size()));
  column.kind = kind == "n"   ? ColumnKind::Numeric
                : kind == "c" ? ColumnKind::Categorical
                : kind == "l" ? ColumnKind::Label
                : kind == "k" ? ColumnKind::Class
                              : ColumnKind::Weight;
  if (kind == "n" || kind == "c") column.output = column.name;
  if (kind != "n") column.missing = 0;
  if (kind == "c") column.buckets = std::int64_t{1} << 61;
  column.ragged = length == "r";
  if (!length.empty()) column.length = column.ragged ? 0 : std::stoll(length);
  return column;
}

json text_of(const Table& table) {
  json columns = json::object();
  for (const TableColumn& column : table.columns) {
    json& values = columns[column.name] = json::array();
    if (column.data.dtype() == DType::Float32)
      for (const float value : column.data.data<float>())
        values.push_back(std::isfinite(value) ? json(value) : json(std::to_string(value)));
    else
      for (const std::int64_t value : column.data.data<std::int64_t>()) values.push_back(value);
    if (!column.ragged()) continue;
    for (const std::int64_t end : column.offsets.data<std::int64_t>())
      columns[column.name + "@"].push_back(end);
  }
  return {{"rows", table.rows}, {"columns", columns}};
}

struct Reader {
  std::string format;
  std::vector<ColumnSpec> columns;

  std::unique_ptr<RowStream> open(std::vector<std::filesystem::path> files, const ReadOptions& read) const {
    if (format == "parquet") return stream_parquet(std::move(files), {.columns = columns, .read = read});
    if (format == "text") return stream_text_lines(std::move(files), {.columns = columns, .read = read});
    return stream_csv(std::move(files), {.header = format == "csv_header", .columns = columns, .read = read});
  }
  std::vector<IndexedFile> index(const std::filesystem::path& file) const {
    if (format == "parquet") return parquet_indexes({file}, {.columns = columns}, 4096);
    BlockIndexOptions options{.layout = format == "text" ? RecordLayout::Lines : RecordLayout::Fields,
                              .block_bytes = 64};
    if (format == "csv_header") options.is_header = [](std::string_view) { return true; };
    return {block_index(file, options)};
  }
  std::shared_ptr<const Table> streamed(const std::filesystem::path& file) const {
    const auto blocks = make_row_blocks(
        index(file), [&](const ReadOptions& read) { return open({}, read); }, 0);
    std::vector<BlockPart> parts;
    for (std::size_t b = 0; b < blocks->blocks().size(); ++b)
      if (blocks->blocks()[b].rows > 0) parts.push_back({b, 0, blocks->blocks()[b].rows});
    return parts.empty() ? blocks->columns() : blocks->read(parts);
  }
};

template <class Read>
void print(Read read) {
  json out;
  try {
    out = text_of(*read());
  } catch (const Error& error) {
    out["error"] = std::string(error_code_name(error.code())) + ": " + error.message();
  }
  std::puts(out.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
}

}  // namespace
}  // namespace braid

int main(int count, char** arguments) {
  using namespace braid;
  if (count < 4) return 2;
  Reader reader{arguments[1], {}};
  for (int i = 3; i < count; ++i) reader.columns.push_back(column_of(arguments[i]));
  print([&] { return reader.open({arguments[2]}, {})->next(INT64_MAX); });
  print([&] { return reader.streamed(arguments[2]); });
}
