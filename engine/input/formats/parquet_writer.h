// Values of a Parquet column as a column of a table, by the rules that all formats share. Private to
// engine/input, where Arrow is there. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/input/formats/field_reader.h"
#include "engine/input/formats/parquet_column.h"
#include "engine/input/schema/schema.h"

namespace braid {

/// Whether the column's values may be floats: others are ids.
bool takes_floats(const ColumnSpec& column);

/// The rows of a ragged column.
struct ParquetBags {
  std::vector<std::int64_t> ids, ends;  // row r has those from ends[r - 1] to ends[r]
  std::vector<float> weights;
  std::vector<std::int64_t> weight_ends;  // of weights that are another column of the file
};

/// A column of the schema into its place in a table. `one` makes single columns, by the rules of all formats.
class ParquetColumnWriter {
 public:
  /// (row, problem); what a bad row has in the table is 0.
  using BadRow = std::function<void(std::int64_t, const std::string&)>;

  explicit ParquetColumnWriter(const ColumnSpec& spec);
  bool is_float() const { return is_float_; }
  bool wants_dictionary() const { return !is_float_ && !plain_ints_ && !spec_.is_bucket(); }
  bool takes_raw_floats() const { return identity_ && spec_.kind == ColumnKind::Numeric; }

  /// The first `rows` of the values to out, out + stride, ..., in elements of the column's type.
  void write(const ParquetValues& values, std::int64_t rows, std::byte* out, std::int64_t stride,
             const BadRow& bad);
  /// The same of a ragged column, ids or weights; a bad row has none.
  void write_bags(const ParquetValues& values, std::int64_t rows, ParquetBags& bags, const BadRow& bad);

  /// From now on hashes() has those of the rows that were written last (TableBuilder::hash_of).
  void keep_hashes();
  const std::vector<std::uint64_t>& hashes() const { return hashes_; }

 private:
  double scaled(double value) const;
  static double number_of(const ParquetValues& values, std::uint32_t place);

  void write_numbers(const ParquetValues& values, std::int64_t rows, float* out, std::int64_t stride,
                     const BadRow& bad);

  /// Each entry of the dictionary once.
  void write_places(const ParquetValues& values, std::int64_t rows, std::int64_t* out, std::int64_t stride,
                    const BadRow& bad);

  void write_rows(const ParquetValues& values, std::int64_t rows, std::byte* out, std::int64_t stride,
                  const BadRow& bad);

  void write_weights(const ParquetValues& values, std::int64_t rows, ParquetBags& bags, const BadRow& bad);
  FieldValues values_of_row(const ParquetValues& values, std::int64_t row);
  std::shared_ptr<Table> make_rows(const ParquetValues& values, std::int64_t rows, const BadRow& bad);

  const ColumnSpec spec_;
  TableBuilder one_;
  bool is_float_ = false, plain_floats_ = false, identity_ = false, plain_ints_ = false;
  bool keeps_hashes_ = false;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::int64_t> gathered_;
  std::vector<std::string_view> gathered_texts_;
};

}  // namespace braid
