#include "engine/input/schema/gather_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace braid {
namespace {

/// Elements of one row of a column.
std::int64_t row_elements(const TableColumn& column) {
  std::int64_t n = 1;
  for (int axis = 1; axis < column.data.shape().rank(); ++axis) n *= column.data.shape()[axis];
  return n;
}

/// So large a column of a batch is not in the caches any more when it is read.
constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;

/// Writes past the caches, in pieces of 16 bytes: memory is not read before it is written.
/// REQUIRES: `to` and `bytes` are multiples of 16; finish_streams() before another thread reads.
#ifdef __SSE2__
constexpr bool kStreams = true;
void stream_row(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
}
void finish_streams() { _mm_sfence(); }
#else
constexpr bool kStreams = false;
void stream_row(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void finish_streams() {}
#endif

/// Rows that lie anywhere: each is a cache miss or several, which are begun some rows ahead.
template <class Copy>
void copy_rows(const std::byte* from, std::size_t row_bytes, const std::vector<std::int64_t>& rows,
               const Copy& copy) {
  constexpr std::size_t kLine = 64, kAhead = 12, kMostLines = 16;
  const std::size_t lines = std::min(row_bytes / kLine + 1, kMostLines);
  const auto at = [&](std::size_t r) { return from + static_cast<std::size_t>(rows[r]) * row_bytes; };
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (r + kAhead < rows.size())
      for (std::size_t line = 0; line < lines; ++line) __builtin_prefetch(at(r + kAhead) + line * kLine);
    copy(at(r), r);
  }
}

}  // namespace

void gather_rows(const TableColumn& from, const std::vector<std::int64_t>& rows, DType to_dtype,
                 std::byte* out) {
  const std::int64_t n = row_elements(from);
  if (from.data.dtype() == to_dtype) {
    const std::size_t bytes = static_cast<std::size_t>(n) * dtype_size(to_dtype);
    if (kStreams && bytes >= 256 && bytes % 16 == 0 && bytes * rows.size() >= kStreamedBytes &&
        reinterpret_cast<std::uintptr_t>(out) % 16 == 0) {
      copy_rows(from.data.raw(), bytes, rows,
                [&](const std::byte* row, std::size_t r) { stream_row(out + r * bytes, row, bytes); });
      return finish_streams();
    }
    copy_rows(from.data.raw(), bytes, rows,
              [&](const std::byte* row, std::size_t r) { std::memcpy(out + r * bytes, row, bytes); });
    return;
  }
  if (to_dtype == DType::Int32) {
    auto* const ids = reinterpret_cast<std::int32_t*>(out);
    copy_rows(from.data.raw(), static_cast<std::size_t>(n) * sizeof(std::int64_t), rows,
              [&](const std::byte* row, std::size_t r) {
                const auto* const wide = reinterpret_cast<const std::int64_t*>(row);
                std::int32_t* const to = ids + r * static_cast<std::size_t>(n);
                for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<std::int32_t>(wide[i]);
              });
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
