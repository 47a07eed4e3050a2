// Parquet as records of named features, both ways: for `braid data`. Where the build lacks Arrow everything
// here throws InvalidArgument (no_parquet.cc). Private to engine/input.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/input/formats/record_file.h"
#include "engine/input/formats/record_sink.h"

namespace braid {

/// Doubles and decimals become floats, bool, dates and times int64, null no feature. Throws: InvalidArgument
/// (a column is nested), DataLoss.
std::unique_ptr<RecordFile> open_parquet_records(const std::filesystem::path& file);

/// `options.columns` and `options.kinds` say what there is. Row groups of options.row_group_rows, Snappy.
std::unique_ptr<RecordSink> create_parquet_sink(const std::filesystem::path& file,
                                                const RecordSinkOptions& options);

}  // namespace braid
