// One column of one row group of a Parquet file, some rows at a time: numbers, ids or texts, whatever the
// file has. Private to parquet_files.cc and parquet_records.cc. Thread rule: one thread.
#pragma once

#include <parquet/file_reader.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/input/formats/parquet_leaf.h"

namespace braid {

/// Values of rows: row r has those from ends[r - 1] to ends[r] (of a flat column one or none).
struct ParquetValues {
  ParquetKind kind = ParquetKind::Int;
  std::vector<std::int64_t> ints;  // by kind, one of these
  std::vector<double> floats;
  bool is_unsigned = false;  // ints are uint64 by their bits
  bool is_list = false;      // of the file
  std::vector<std::string_view> texts;
  std::vector<std::uint32_t> ends;  // empty: each row has one value
  // Of a column of a dictionary: values are places in it, in `ints`, and its entries are above.
  std::vector<std::int64_t> places;
  bool by_dictionary = false;

  std::vector<std::string> memory;        // of texts
  std::vector<std::vector<char>> blocks;  // of them, too
};

class ParquetColumnReader {
 public:
  virtual ~ParquetColumnReader() = default;
  /// Begins behind the first `skip` rows of the row group. `dictionary`: values may come as places in one.
  static std::unique_ptr<ParquetColumnReader> open(parquet::RowGroupReader& group, const ParquetLeaf& leaf,
                                                   std::int64_t skip, bool dictionary);
  /// The next `rows` rows; `values` is valid until the next call. Throws: what Arrow throws; DataLoss (the
  /// column has fewer).
  virtual void read(std::int64_t rows, ParquetValues& values) = 0;
  enum class Floats { None, Finite, Some };
  /// The same of a flat column of numbers without nulls straight as floats, `stride` apart. Result: None,
  /// with nothing read, where it is none; Some where values may be NaN or infinite.
  virtual Floats read_floats(std::int64_t rows, float* out, std::int64_t stride) = 0;
};

}  // namespace braid
