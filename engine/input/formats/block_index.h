// Where the records of text and TFRecord files begin, block by block: what lets a stream read them anywhere.
// Made in one pass over a file and kept beside it as FILE.braid_index, or in a directory of indexes; an index
// of a file that has changed since is made again, and said to be. docs/design/formats/block_index.md has the
// format. Packed files (gzip, zstd, ...) have no places to begin at: small ones are one block, larger ones
// are unpacked into the directory of indexes once. Thread rule: any thread; who makes the same index at the
// same time makes the same file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/files/data_file.h"
#include "engine/input/files/file_piece.h"

namespace braid {

enum class RecordLayout {
  Lines,   // each is a record
  Fields,  // of CSV: those that are not empty and no comments; quoted fields may hold line ends
  TfRecord
};

struct BlockIndexOptions {
  RecordLayout layout = RecordLayout::Lines;
  char separator = ',';      // Fields
  std::string comment = {};  // Fields
  /// Whether the first record of a file, given its first line, is names.
  std::function<bool(std::string_view first_line)> is_header = {};
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
  std::int64_t max_bad_records = 0;  // above 0 a TFRecord file may be damaged: what is behind is left out
  /// Of indexes and unpacked files; empty: beside each file, or in $XDG_CACHE_HOME/braid (~/.cache/braid)
  /// where that cannot be written, or is a store.
  std::filesystem::path directory = {};
};

struct IndexedBlock {
  std::uint64_t begin = 0, end = 0;  // bytes of the file
  std::int64_t lines_before = 0;     // behind the header; of TFRecord records
  std::int64_t rows = 0;
  std::uint32_t crc = 0;
};

struct IndexedFile {
  std::filesystem::path file;  // what is read: the file, or its unpacked form
  FileStamp stamp;             // of the file
  std::uint64_t header_end = 0;
  bool packed = false;         // one block, read from the front
  const char* unit = "bytes";  // of the blocks' begin and end: Parquet has "rows"
  std::vector<IndexedBlock> blocks;
  std::function<std::shared_ptr<const std::string>()> load = {};  // of a file that lies nowhere: its bytes

  FilePiece piece(std::size_t block) const;
  std::int64_t rows() const;
};

/// The index of a file, made where there is none that fits. Throws: as open_bytes(); DataLoss (a record of
/// TFRecord that cannot be passed).
IndexedFile block_index(const std::filesystem::path& file, const BlockIndexOptions& options);

/// The same for several, by a few threads, in their order; each has the options that `options_of` gives.
std::vector<IndexedFile> block_indexes(
    const std::vector<std::filesystem::path>& files,
    const std::function<BlockIndexOptions(const std::filesystem::path&)>& options_of);

/// Where the index of a file is kept, if it can be.
std::filesystem::path index_path(const std::filesystem::path& file, const BlockIndexOptions& options);

}  // namespace braid
