// What the columns of a data file probably mean to a model of tables: `braid init` and `braid data show
// --columns`. A guess is a start for whoever knows the data; each comes with its reason. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/input/formats/record_file.h"
#include "engine/input/formats/record_summary.h"
#include "engine/input/schema/schema.h"

namespace braid::cli {

struct GuessedColumn {
  ColumnSpec spec;
  std::string why;  // for a comment beside it
};

struct LabelWish {
  std::string name;      // empty: the likeliest one
  std::string positive;  // the value that counts as 1; empty: 1 of 0 and 1, else the rarer one of two
};

/// In the file's order. At most one column is a Label: that of the wish, else the likeliest one; where
/// nothing looks like a label there is none. Throws: InvalidArgument where the wish cannot be met (no such
/// column, one value only, more than two and no `positive`), with what is there.
std::vector<GuessedColumn> guess_columns(const RecordFile& file, const RecordSummary& summary,
                                         const LabelWish& wish);

/// The `columns` block of a job, a line a column.
std::string columns_text(const std::vector<GuessedColumn>& columns, const std::string& indent = "");

/// In quotes, as text protobuf has it.
std::string text_literal(std::string_view text);

}  // namespace braid::cli
