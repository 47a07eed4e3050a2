// Files -> Table. Readers load whole files; every error names file and line (or byte). ".gz" files are
// inflated on the way.
//   IDX     images and labels of the MNIST family: columns "image" uint8 [rows, height, width, 1] scaled by
//   1/255, "label" int64 [rows] CSV     columns by a schema: "dense" float [rows, numeric columns], "sparse"
//   int64 [rows, categorical columns], "label" float [rows] CRITEO  label, 13 integers, 26 hexadecimal
//   categories: the same three columns; tab separated without a header, or comma separated with one
// Throws: InvalidArgument (a missing file), DataLoss (a bad record beyond `max_bad_records`: file, line,
// column, what was expected).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/table.h"

namespace braid {

/// The whole file, inflated when its name ends in .gz. Throws: InvalidArgument (cannot open: path and
/// reason), DataLoss (damaged gzip).
std::string read_text_file(const std::filesystem::path& file);

std::shared_ptr<const Table> read_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels);

enum class ColumnKind { Skip, Numeric, Categorical, Label };

struct CsvColumn {
  std::string name = {};
  ColumnKind kind = ColumnKind::Skip;
  std::int64_t buckets = 0;  // Categorical: rows of the table that it is hashed into
  std::string positive =
      {};  // Label: 1 when the field begins with this, else 0; empty: the field is a number
  double shift = 0, scale = 1;  // Numeric: (x - shift) / scale
  bool log1p = false;           // Numeric: log(1 + max(x, 0)) first
  double missing = 0;           // Numeric: an empty or "?" field
};

struct CsvOptions {
  char separator = ',';
  bool header = false;
  std::string comment = {};  // lines that begin with it are skipped
  std::vector<CsvColumn> columns = {};
  std::int64_t max_bad_records = 0;
};

std::shared_ptr<const Table> read_csv(const std::vector<std::filesystem::path>& files,
                                      const CsvOptions& options);

struct CriteoOptions {
  std::int64_t buckets = 100000;  // of each of the 26 columns
  std::int64_t max_bad_records = 0;
};

std::shared_ptr<const Table> read_criteo(const std::vector<std::filesystem::path>& files,
                                         const CriteoOptions& options);

}  // namespace braid
