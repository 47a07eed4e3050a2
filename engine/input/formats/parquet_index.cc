// The blocks of Parquet files: row groups, joined or cut to about the size that is asked for.
#include <parquet/metadata.h>

#include <algorithm>

#include "engine/input/formats/parquet_files.h"
#include "engine/input/formats/parquet_footer.h"

namespace braid {

std::vector<IndexedFile> parquet_indexes(const std::vector<std::filesystem::path>& files,
                                         const ParquetOptions& options, std::uint64_t block_bytes) {
  std::vector<IndexedFile> indexes;
  for (const std::filesystem::path& path : files) {
    const ParquetFooter footer = read_parquet_footer(path);
    const ParquetFileColumns columns = columns_in(footer, options);
    IndexedFile& index = indexes.emplace_back();
    index.file = path;
    index.stamp = footer.stamp;
    index.unit = "rows";
    std::int64_t first = 0;
    double open_bytes = 0;  // of the block that grows
    IndexedBlock open;
    const auto close = [&] {
      if (open.rows > 0) index.blocks.push_back(open);
      open = {static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(first), first, 0, 0};
      open_bytes = 0;
    };
    for (int g = 0; g < footer.meta->num_row_groups(); ++g) {
      const auto group = footer.meta->RowGroup(g);
      const std::int64_t rows = group->num_rows();
      double bytes = 0;
      for (const std::optional<ParquetLeaf>& leaf : columns.columns)
        if (leaf) bytes += static_cast<double>(group->ColumnChunk(leaf->column)->total_uncompressed_size());
      // As many bytes as its rows take, where a dictionary or runs make the file's fewer.
      bytes = std::max(bytes, static_cast<double>(rows) * 4 * static_cast<double>(columns.columns.size()));
      const auto target = static_cast<double>(block_bytes);
      if (open.rows == 0 || open_bytes + bytes > 1.5 * target) close();
      if (bytes > 2 * target) {
        close();
        const auto cuts = static_cast<std::int64_t>(std::min(bytes / target, static_cast<double>(rows)));
        for (std::int64_t k = 0; k < cuts; ++k) {
          const std::int64_t from = first + rows * k / cuts, to = first + rows * (k + 1) / cuts;
          index.blocks.push_back(
              {static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), from, to - from, 0});
        }
        first += rows;
        close();
        continue;
      }
      open.rows += rows;
      open.end = open.begin + static_cast<std::uint64_t>(open.rows);
      open_bytes += bytes;
      first += rows;
    }
    close();
    const std::uint32_t id = footer.id();
    for (IndexedBlock& block : index.blocks) block.crc = id;
  }
  return indexes;
}

}  // namespace braid
