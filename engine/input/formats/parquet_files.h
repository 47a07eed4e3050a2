// Apache Parquet by a schema whose columns are named after the files' columns: only those are read. Built
// with Apache Arrow (parquet_files.cc); where the build lacks it, everything here throws InvalidArgument with
// what to install (no_parquet.cc).
//
// Integers, floats (16 to 64 bits), decimals, bool, dates and times become numbers or ids; texts and binary
// categories and classes, as in CSV: the same word is the same id. Null, and in NUMERIC columns NaN, is a
// missing value. A list of one level is the values of a column of a `length`; other nesting is refused. Rows
// are those of the files; a row group is read in parts where it is large, skipping pages before them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/formats/block_index.h"
#include "engine/input/formats/readers.h"

namespace braid {

struct ParquetOptions {
  std::vector<ColumnSpec> columns = {};
  ReadOptions read = {};
};

/// Whether this build reads Parquet.
bool has_parquet();
/// By its first bytes.
bool is_parquet_file(const std::filesystem::path& file);

/// Pieces (RowStream::begin) are of rows: begin and end count those of the file. Throws: InvalidArgument (a
/// file lacks a column: both, and those that it has; a column of a type that cannot be used), DataLoss (a
/// damaged or changed file).
std::unique_ptr<RowStream> stream_parquet(std::vector<std::filesystem::path> files, ParquetOptions options);

/// Blocks from the files' footers: row groups of about `block_bytes` of the columns' bytes; smaller ones next
/// to each other are one, larger ones are cut. The columns of each file are checked.
std::vector<IndexedFile> parquet_indexes(const std::vector<std::filesystem::path>& files,
                                         const ParquetOptions& options, std::uint64_t block_bytes);

}  // namespace braid
