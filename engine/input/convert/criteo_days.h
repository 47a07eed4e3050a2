// Criteo's raw days as rows of MLPerf's DLRM-v2, as its reference prepares them:
//   numbers      log(x + 3); a missing one counts as 0
//   categories   numbers of the order in which they first appear over all days, from 2 on, a column by
//   itself;
//                then modulo the rows of the column's table. A missing one counts as the value 0
//   further ids  of a fixed random table by the first one (bag_tables.h)
// A day is a file of lines, a label, 13 integers and 26 hexadecimal categories of up to 8 digits, tab
// separated, plain or packed. Rows keep their order; the reference also shuffles them, which streams do.
//
// Out of core, in steps whose results are files of a directory of work: the lines' columns, ids by column,
// bags, rows. What an interrupted call has finished there is kept by the next one with the same days and
// settings. Memory: `memory_bytes` for the values of one column, some MiB more, and what the kernel keeps of
// the bags. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/input/formats/mlperf_dlrm.h"

namespace braid {

struct CriteoDaysOptions {
  std::vector<std::filesystem::path> days;  // in their order
  std::filesystem::path out;                // directory
  std::filesystem::path work;               // another one; removed at the end
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;
  std::int64_t max_rows = 0;  // of a table; 0: the benchmark's. With others the data are no benchmark's
  std::int64_t max_bad_records = 0;
  std::function<void(const std::string&)> progress = {};  // a line for people
};

struct CriteoDaysResult {
  std::vector<std::filesystem::path> train, validation, test;  // files of rows
  std::int64_t train_rows = 0, validation_rows = 0, test_rows = 0, bad_records = 0;
  std::vector<std::uint64_t> distinct;  // values of each column
};

/// Writes "<day>.bin" for each day but the last, whose first half, the larger one, is "val_data.bin" and
/// whose second is "test_data.bin". Of one day alone all rows are "<day>.bin". Throws: InvalidArgument (a
/// missing file, two days of one name, other days or settings than the work that is there), DataLoss (more
/// bad records than allowed: file, line, what), Unavailable (disk).
CriteoDaysResult convert_criteo_days(const CriteoDaysOptions& options);

}  // namespace braid
