#include "engine/input/formats/parquet_footer.h"

#include <fmt/format.h>
#include <parquet/exception.h>
#include <parquet/properties.h>

#include <algorithm>

#include "base/crc32c.h"
#include "base/error.h"
#include "engine/input/files/arrow_file.h"
#include "engine/input/formats/line_reader.h"
#include "engine/input/formats/parquet_writer.h"

namespace braid {
namespace {

constexpr std::int64_t kColumnBuffer = std::int64_t{256} << 10;

std::optional<ParquetLeaf> leaf_of(const ParquetFooter& footer, const std::string& name) {
  try {
    return find_parquet_leaf(*footer.meta->schema(), name);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("'" + footer.file->path().string() + "' column '" + name + "': " + error.message());
  }
}

ParquetLeaf needed_leaf(const ParquetFooter& footer, const std::string& name) {
  if (const auto leaf = leaf_of(footer, name)) return *leaf;
  refuse_column(name, footer.file->path(), parquet_column_names(*footer.meta->schema()));
}

bool is_ignored(const ReadOptions& read, const ColumnSpec& column) {
  return std::find(read.ignored.begin(), read.ignored.end(), output_name(column)) != read.ignored.end();
}

}  // namespace

std::unique_ptr<parquet::ParquetFileReader> ParquetFooter::open() const {
  parquet::ReaderProperties properties = parquet::default_reader_properties();
  properties.enable_buffered_stream();
  properties.set_buffer_size(kColumnBuffer);
  properties.set_page_checksum_verification(true);
  return parquet::ParquetFileReader::Open(as_arrow_file(file), properties, meta);
}

std::uint32_t ParquetFooter::id() const {
  std::string text = fmt::format("{} {}", stamp.size, meta->num_rows());
  for (int g = 0; g < meta->num_row_groups(); ++g) {
    const auto group = meta->RowGroup(g);
    text += fmt::format(" {} {} {}", group->num_rows(), group->total_byte_size(), group->file_offset());
  }
  return crc32c(std::as_bytes(std::span(text)));
}

ParquetFooter read_parquet_footer(const std::filesystem::path& path) {
  ParquetFooter footer{open_data_file(path), stamp_of(path), nullptr};
  try {
    footer.meta = parquet::ReadMetaData(as_arrow_file(footer.file));
  } catch (const parquet::ParquetException& error) {
    throw DataLoss("'" + path.string() + "': not a Parquet file, or a damaged one: " + error.what());
  }
  return footer;
}

std::shared_ptr<const ParquetFooter> ParquetFooters::of(const std::filesystem::path& path) {
  std::lock_guard lock(mu_);
  const FileStamp stamp = stamp_of(path);
  std::erase_if(kept_, [&](const auto& each) { return each.first == path && each.second->stamp != stamp; });
  for (auto& [name, footer] : kept_)
    if (name == path) return footer;
  auto footer = std::make_shared<const ParquetFooter>(read_parquet_footer(path));
  constexpr std::size_t kMost = 32;
  if (kept_.size() >= kMost) kept_.erase(kept_.begin());
  kept_.emplace_back(path, footer);
  return footer;
}

ParquetFileColumns columns_in(const ParquetFooter& footer, const ParquetOptions& options) {
  ParquetFileColumns columns;
  for (const ColumnSpec& column : options.columns) {
    std::optional<ParquetLeaf>& to = columns.columns.emplace_back();
    const std::string field = field_of(column);
    if (column.kind == ColumnKind::Skip || field.empty() || is_ignored(options.read, column)) continue;
    to = needed_leaf(footer, field);
    if (column.has_part()) to = as_parquet_time(*footer.meta->schema(), *to);
    if (to->is_list && column.kind == ColumnKind::Numeric && !column.ragged &&
        to->kind != ParquetKind::Text) {
      to->kind = ParquetKind::Float;
      to->keeps_nulls = true;
    }
    if (to->kind == ParquetKind::Float && !takes_floats(column))
      throw InvalidArgument("'" + footer.file->path().string() + "' column '" + column.name +
                            "': has floats, an id needs integers or texts");
    if (to->is_list && !column.is_list())
      throw InvalidArgument("'" + footer.file->path().string() + "' column '" + column.name +
                            "': is a list, the schema's length is 1");
  }
  if (!options.read.key_column.empty()) columns.key = needed_leaf(footer, options.read.key_column);
  if (!options.read.group_column.empty()) columns.group = needed_leaf(footer, options.read.group_column);
  return columns;
}

}  // namespace braid
