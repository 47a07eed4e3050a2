#include "engine/input/schema/gather_rows.h"

#include <algorithm>
#include <cstring>

namespace braid {
namespace {

/// Elements of one row of a column.
std::int64_t row_elements(const TableColumn& column) {
  std::int64_t n = 1;
  for (int axis = 1; axis < column.data.shape().rank(); ++axis) n *= column.data.shape()[axis];
  return n;
}

/// Rows that lie anywhere: each is a cache miss or several, which are begun some rows ahead.
void copy_rows(const std::byte* from, std::size_t row_bytes, const std::vector<std::int64_t>& rows,
               std::byte* to) {
  constexpr std::size_t kLine = 64, kAhead = 12, kMostLines = 8;
  const std::size_t lines = std::min(row_bytes / kLine + 1, kMostLines);
  const auto at = [&](std::size_t r) { return from + static_cast<std::size_t>(rows[r]) * row_bytes; };
  for (std::size_t r = 0; r < rows.size(); ++r, to += row_bytes) {
    if (r + kAhead < rows.size())
      for (std::size_t line = 0; line < lines; ++line) __builtin_prefetch(at(r + kAhead) + line * kLine);
    std::memcpy(to, at(r), row_bytes);
  }
}

}  // namespace

void gather_rows(const TableColumn& from, const std::vector<std::int64_t>& rows, DType to_dtype,
                 std::byte* out) {
  const std::int64_t n = row_elements(from);
  if (from.data.dtype() == to_dtype) {
    copy_rows(from.data.raw(), static_cast<std::size_t>(n) * dtype_size(from.data.dtype()), rows, out);
    return;
  }
  auto* to = reinterpret_cast<float*>(out);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(from.data.raw());
  for (const std::int64_t r : rows) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(bytes[r * n + i]) * from.scale;
    to += n;
  }
}

}  // namespace braid
