// One column of one row group of a Parquet file, some rows at a time: numbers, ids or texts, whatever the
// file has. Private to parquet_files.cc and parquet_records.cc. Thread rule: one thread.
#pragma once

#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

/// What a column's values are to a reader of rows.
enum class ParquetKind { Int, Float, Text };

struct ParquetLeaf {
  int column = -1;  // of the file's leaves
  ParquetKind kind = ParquetKind::Int;
  bool is_list = false;
  // Values are seconds since 1970, in `floats`: as_parquet_time().
  bool as_seconds = false;
  // Of a list: values are in `floats`, and a null among them is NaN at its place; else it is left out.
  bool keeps_nulls = false;
};

/// The leaf of a column by its name; nothing where there is none. Throws: InvalidArgument (nested, or a type
/// that is none of the kinds: without the file).
std::optional<ParquetLeaf> find_parquet_leaf(const parquet::SchemaDescriptor& schema,
                                             const std::string& name);
/// The same of a column that a schema reads as times: a date or a timestamp says its unit, and comes as
/// seconds; of other columns nothing is changed.
ParquetLeaf as_parquet_time(const parquet::SchemaDescriptor& schema, ParquetLeaf leaf);
/// Whether its values are days since 1970.
bool is_parquet_date(const parquet::SchemaDescriptor& schema, const ParquetLeaf& leaf);
std::vector<std::string> parquet_column_names(const parquet::SchemaDescriptor& schema);

/// Values of rows: row r has those from ends[r - 1] to ends[r] (of a flat column one or none).
struct ParquetValues {
  ParquetKind kind = ParquetKind::Int;
  std::vector<std::int64_t> ints;  // by kind, one of these
  std::vector<double> floats;
  bool is_unsigned = false;  // ints are uint64 by their bits
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
