// The footer of a Parquet file, and which of its columns a schema reads. Private to engine/input, where Arrow
// is there. Thread rule: any thread; a Footer is read only.
#pragma once

#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/input/files/data_file.h"
#include "engine/input/formats/parquet_column.h"
#include "engine/input/formats/parquet_files.h"

namespace braid {

/// Errors have the file's name.
struct ParquetFooter {
  std::shared_ptr<DataFile> file;
  FileStamp stamp;
  std::shared_ptr<parquet::FileMetaData> meta;

  std::unique_ptr<parquet::ParquetFileReader> open() const;
  /// Of what it says of the rows: another file has another one.
  std::uint32_t id() const;
};

/// Throws: DataLoss (no Parquet file, or a damaged one), and as open_data_file().
ParquetFooter read_parquet_footer(const std::filesystem::path& path);

/// The footers that were read last: a file of many row groups is opened for each of them.
class ParquetFooters {
 public:
  std::shared_ptr<const ParquetFooter> of(const std::filesystem::path& path);

 private:
  std::mutex mu_;
  std::vector<std::pair<std::filesystem::path, std::shared_ptr<const ParquetFooter>>>
      kept_;  // guarded by mu_
};

/// The columns of a file that a schema reads.
struct ParquetFileColumns {
  std::vector<std::optional<ParquetLeaf>> columns;  // of the schema's; none where it is ignored or skipped
  std::optional<ParquetLeaf> key, group;
};

/// Throws: InvalidArgument naming file and column (it is not there, or has another type).
ParquetFileColumns columns_in(const ParquetFooter& footer, const ParquetOptions& options);

}  // namespace braid
