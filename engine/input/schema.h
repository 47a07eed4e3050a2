// What the columns of a row-wise file mean, and the tables that are made by them: texts (CSV), typed features
// (TFRecord), lines or generated values become the tensors that a model reads.
//
//   Numeric      float: (x - shift) / scale, after log(1 + max(x, 0)) where log1p; absent: `missing` as x
//   Categorical  int64: the place in `vocabulary`; else vocabulary size + hash mod `buckets`; the hash is
//                stable_hash("<name>=<text>"), an integer counts as its decimal text
//   Label        float: the number, or 1 when the text begins with `positive` and 0 when it does not
//   Class        int64: the number, or the place in `vocabulary`
//   Weight       float, at least 0: how much the row's loss counts; its output is always "weight"
//                absent or empty categories and classes: `missing_word`
// A column of `length` > 1 is a list (texts are cut at `list_separator`): more values are cut off; fewer are
// filled with `missing`, or, of a category, with 0, for which its ids begin at 1. Columns of one `output`
// stand side by side in the order of the schema; [rows] when there is one of length 1 among labels,
// classes and weights, else [rows, width]. Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/input/table.h"

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
  std::int64_t length = 1;
  char list_separator = '|';
  std::string output = {};  // default: "dense", "sparse", "label", "weight" by kind

  /// Number of different ids of a Categorical column.
  std::int64_t ids() const;
};

/// The column of the table that a column of the schema becomes, or becomes a part of.
std::string output_name(const ColumnSpec& column);

/// The values of one field of one record, of whatever type the file has.
struct FieldValues {
  std::span<const std::string_view> texts = {};
  std::span<const float> floats = {};
  std::span<const std::int64_t> ints = {};
  std::size_t size() const { return texts.size() + floats.size() + ints.size(); }
};

class TableBuilder {
 public:
  /// Throws: InvalidArgument: what in the schema contradicts itself, with the column's name.
  explicit TableBuilder(std::vector<ColumnSpec> columns);

  const std::vector<ColumnSpec>& columns() const { return columns_; }
  std::int64_t rows() const { return rows_; }

  /// One field of the present row. REQUIRES: in the order of the schema, each column once. Returns what is
  /// wrong with it, or an empty text; after a problem the row is to be dropped.
  std::string add_text(std::size_t column, std::string_view field);
  std::string add_values(std::size_t column, const FieldValues& values);
  /// In the place of a field that is not looked at: 0.
  void add_blank(std::size_t column);
  void end_row() { ++rows_; }
  void drop_row();
  /// A row of zeros in the place of the present one.
  void blank_row();

  /// The table; the builder is empty afterwards, and may be filled again.
  std::shared_ptr<Table> finish(std::int64_t skipped);

 private:
  struct Output {
    std::string name;
    bool is_float = true;
    bool flat = false;  // [rows], not [rows, 1]
    std::int64_t width = 0;
    std::vector<TableField> fields;
    std::vector<float> floats;
    std::vector<std::int64_t> ints;
  };
  void check(const ColumnSpec& column) const;
  std::size_t output_of(const ColumnSpec& column);
  std::string add_one_text(std::size_t column, std::string_view text);
  std::string add_number(std::size_t column, double value);
  std::string add_id(std::size_t column, std::string_view text);
  void pad(std::size_t column, std::size_t have);

  std::vector<ColumnSpec> columns_;
  std::vector<std::size_t> column_output_;
  std::vector<std::unordered_map<std::string, std::int64_t>> vocabulary_;
  std::vector<Output> outputs_;
  std::int64_t rows_ = 0;
  std::string key_;
};

}  // namespace braid
