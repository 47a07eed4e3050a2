// What the columns of a row-wise file mean, and the tables that are made by them: texts (CSV), typed features
// (TFRecord), lines or generated values become the tensors that a model reads.
//
//   Numeric      float: (x - shift) / scale, after log(1 + max(x, 0)) where log1p; absent: `missing` as x
//   Categorical  int64: the place in `vocabulary`; else vocabulary size + hash mod `buckets`; the hash is
//                stable_hash("<name>=<text>"), an integer counts as its decimal text
//   Label        float: the number, or 1 when the text begins with `positive` and 0 when it does not
//   Class        int64: the number, or the place in `vocabulary`
//                with `borders` how many of them are not above the number, with a `time_part` that part; what
//                is missing is the last id. A cross is mix(h, hash of the value) over the columns that it
//                names, from stable_hash("<name>="), mod `buckets`
//   Weight       float, at least 0: how much the row's loss counts; its output is always "weight"
//                absent or empty categories and classes: `missing_word`
// A column of `length` > 1 is a list (texts are cut at `list_separator`): more values are cut off; fewer are
// filled with `missing`, or, of a category, with 0, for which its ids begin at 1. A `ragged` column is filled
// with nothing: it is a column of the table of its own, with offsets and perhaps weights. Columns of one
// `output` stand side by side in the order of the schema; [rows] when there is one of length 1 among labels,
// classes and weights, else [rows, width]. Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/input/schema/column_spec.h"
#include "engine/input/schema/table.h"

namespace braid {

/// The values of one field of one record, of whatever type the file has.
struct FieldValues {
  std::span<const std::string_view> texts = {};
  std::span<const float> floats = {};
  std::span<const std::int64_t> ints = {};
  std::span<const double> doubles = {};
  bool is_unsigned = false;  // ints are uint64 by their bits
  bool are_items = false;    // of a list of the file: a text is an item, not several
  std::size_t size() const { return texts.size() + floats.size() + ints.size() + doubles.size(); }
};

/// What a cross makes of the hash so far and that of the next column's value.
std::uint64_t cross_hash(std::uint64_t hash, std::uint64_t value);

class TableBuilder {
 public:
  /// Throws: InvalidArgument: what in the schema contradicts itself, with the column's name.
  explicit TableBuilder(std::vector<ColumnSpec> columns);

  const std::vector<ColumnSpec>& columns() const { return columns_; }
  std::int64_t rows() const { return rows_; }

  /// One field of the present row. REQUIRES: in the order of the schema, each column once; what a cross is
  /// given is not looked at. Returns what is wrong with it, or an empty text; after a problem the row is to
  /// be dropped.
  std::string add_text(std::size_t column, std::string_view field);
  std::string add_values(std::size_t column, const FieldValues& values);
  /// In the place of a field that is not looked at: 0, of a ragged column nothing.
  void add_blank(std::size_t column);
  void end_row();
  void drop_row();
  /// A row of zeros in the place of the present one.
  void blank_row();

  /// hash_of() of a column that no cross names.
  void keep_hash(std::size_t column) { hashed_[column] = true; }
  /// Of the last value of a column of one id a row: stable_hash("<name>=<text>").
  std::uint64_t hash_of(std::size_t column) const { return hashes_[column]; }

  /// The table; the builder is empty afterwards, and may be filled again.
  std::shared_ptr<Table> finish(std::int64_t skipped);

 private:
  struct Output {
    std::string name;
    bool is_float = true;
    bool flat = false;  // [rows], not [rows, 1]
    std::int64_t width = 0;
    std::vector<TableField> fields;
    std::vector<float> floats;  // of a ragged one the weights
    std::vector<std::int64_t> ints;
    bool ragged = false, weighted = false;
    std::int64_t batch_values = 0;
    std::vector<std::int64_t> ends;  // of the rows, of a ragged one
  };
  static constexpr std::size_t kNone = SIZE_MAX;

  Output& output(std::size_t column) { return outputs_[column_output_[column]]; }
  std::size_t output_of(const ColumnSpec& column);
  std::size_t ragged_output_of(const ColumnSpec& column);
  void find_weights();
  std::string add_one_text(std::size_t column, std::string_view text);
  std::string add_number(std::size_t column, double value);
  std::string add_id(std::size_t column, std::string_view text);
  std::string add_bucket(std::size_t column, std::string_view text);
  void push_bucket(std::size_t column, double value);
  void push_missing_bucket(std::size_t column);
  void push_id(std::size_t column, std::int64_t place);
  std::string add_cross(std::size_t column);
  std::string add_items(std::size_t column, std::string_view field);
  std::string add_weighted(std::size_t column, std::string_view item);
  std::string add_int(std::size_t column, std::int64_t value, bool is_unsigned);
  std::string add_float(std::size_t column, double value);
  std::string check_weights(std::size_t column) const;
  std::size_t room(std::size_t column) const;
  void pad(std::size_t column, std::size_t have);

  std::vector<ColumnSpec> columns_;
  std::vector<std::size_t> column_output_;
  std::vector<std::size_t> partner_;  // ids of weights and weights of ids, of ragged columns; kNone
  std::vector<std::unordered_map<std::string, std::int64_t>> vocabulary_;
  std::vector<std::vector<std::size_t>> crossed_;  // the columns of a cross
  std::vector<bool> hashed_;
  std::vector<std::uint64_t> hashes_;
  std::vector<Output> outputs_;
  std::vector<std::size_t> ragged_;  // outputs
  std::int64_t rows_ = 0;
  std::string key_;
};

}  // namespace braid
