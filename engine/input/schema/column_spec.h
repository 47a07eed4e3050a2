// What one column of a schema is: where its values come from, and what they become.
// engine/input/schema/schema.h has the rules. Thread rule: a value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/input/schema/column_table.h"
#include "engine/input/schema/time_parts.h"

namespace braid {

enum class ColumnKind { Skip, Numeric, Categorical, Label, Class, Weight };

/// The output of the column of weights, and of no other.
inline constexpr std::string_view kWeightOutput = "weight";

struct ColumnSpec {
  std::string name = {};
  ColumnKind kind = ColumnKind::Skip;
  std::int64_t buckets = 0;
  std::string positive = {};
  double shift = 0, scale = 1;
  bool log1p = false;
  double missing = 0;             // of an empty or "?" field too
  std::string missing_word = {};  // of an empty field of a Categorical or a Class
  std::vector<std::string> vocabulary = {};
  std::int64_t length = 1;  // ragged: the most values of a row; 0: any number
  char list_separator = '|';
  std::string output = {};  // default: "dense", "sparse", "label", "weight" by kind
  bool ragged = false;
  std::string weights = {};    // of a ragged Categorical: the ragged Numeric with a number for each id
  char weight_separator = 0;   // in text, before an id's weight; 0: none
  std::int64_t batch_ids = 0;  // ids that a worker's part of a batch may have; 0: what the data says
  ColumnTable table = {};
  std::string field = {};               // of the file; empty: `name`
  std::vector<std::string> cross = {};  // columns whose values' combinations are hashed
  std::vector<double> borders = {};     // of a Categorical of numbers
  TimePart time_part = TimePart::None;

  /// Number of different ids of a Categorical column.
  std::int64_t ids() const;
  bool is_list() const { return ragged || length > 1; }
  /// Whether ids are places between borders, or parts of times, and so made of numbers.
  bool is_bucket() const { return kind == ColumnKind::Categorical && (!borders.empty() || has_part()); }
  bool has_part() const { return time_part != TimePart::None; }
};

/// The field of the file that it reads; empty of a cross, which reads none.
std::string field_of(const ColumnSpec& column);

/// The column of the table that a column of the schema becomes, or becomes a part of: of a ragged one
/// "<output>/<name>".
std::string output_name(const ColumnSpec& column);

/// Whether the values are floats. (Ragged weights go beside the ids that they weigh.)
bool is_float_kind(ColumnKind kind);

/// A name as a part of a node's name: '_' for what it must not have.
std::string plain_name(std::string_view name);

/// Throws: InvalidArgument: what contradicts itself or other columns, with the column's name.
void check_columns(std::span<const ColumnSpec> columns);

}  // namespace braid
