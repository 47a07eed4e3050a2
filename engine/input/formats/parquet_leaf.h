// What the columns of a Parquet file are to a reader of rows: numbers, ids or texts, lists or not, and what
// their values count. Reads no values (parquet_column.h does). Thread rule: pure functions.
#pragma once

#include <parquet/schema.h>

#include <optional>
#include <string>
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

/// A value means value * times / parts, which rounds once: seconds of a time, the number of a decimal.
struct ParquetUnit {
  double times = 1, parts = 1;
};

/// What a value counts: of decimals and, where the leaf asks for them, of times.
ParquetUnit parquet_unit(const parquet::ColumnDescriptor& column, const ParquetLeaf& leaf);
/// Two bytes of a float, IEEE 754 binary16.
bool is_parquet_half(const parquet::ColumnDescriptor& column);

}  // namespace braid
