// Rows of a column of a table, wherever they lie, one behind the other as a batch has them. Thread rule: any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/input/schema/table.h"

namespace braid {

/// `from`: not ragged. `out` has room for so many rows of `to_dtype`: the column's, or Float32 of a uint8
/// column, whose values are multiplied by its scale.
void gather_rows(const TableColumn& from, const std::vector<std::int64_t>& rows, DType to_dtype,
                 std::byte* out);

}  // namespace braid
