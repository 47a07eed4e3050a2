// What a model is asked to make of the ids of a column: its embedding table. The input passes it on. Thread
// rule: a value.
#pragma once

#include <cstdint>
#include <string>

namespace braid {

/// How the rows of a list's ids become one.
enum class ListPooling { ModelsOwn, Sum, Mean, SqrtN, Max, Attention };

struct ColumnTable {
  std::string shared = {};  // columns of one word share a table; empty: one of its own
  std::int64_t dim = 0;     // 0: the model's
  double init = 0;          // it begins uniform in +- this; 0: as the model has it
  ListPooling pooling = ListPooling::ModelsOwn;
  std::string query = {};  // of pooling Attention: the column whose row asks; empty: a learned vector
};

}  // namespace braid
