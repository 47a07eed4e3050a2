// First values of a variable that holds rows of a table, made where its memory is: on the host by the threads
// of a pool, on a device by a kernel. The bits are those of base/init.h, wherever and by however many they
// are made. Thread rule: pure functions; distinct memory from any threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/init.h"
#include "base/stream_ref.h"
#include "base/thread_pool.h"
#include "engine/ops/common/row_shuffle.h"

namespace braid {

/// Row r of the memory has `width` of the `dim` elements of a row of the table, from `column` on.
struct InitialRows {
  InitSpec spec = {};
  RngKey key = {};  // of the table
  std::int64_t rows = 0, width = 0;
  std::int64_t dim = 0, column = 0;
  /// The rows that one of `ranks` holds of a table that is spread; false: row r is the table's row r.
  bool is_spread = false;
  int rank = 0, ranks = 1;
  RowShuffle shuffle{1};

  constexpr std::int64_t row_of(std::int64_t r) const {
    return is_spread ? shuffle.row_at(rank + r * ranks) : r;
  }
  /// The element of the table's stream that the memory's row r begins with.
  constexpr std::uint64_t first_of(std::int64_t r) const {
    return static_cast<std::uint64_t>(row_of(r) * dim + column);
  }
  std::int64_t elements() const { return rows * width; }
  /// Whether the memory is one piece of the stream.
  bool is_whole() const { return !is_spread && width == dim; }

  /// A variable of one process.
  static InitialRows whole(const InitSpec& spec, RngKey key, std::int64_t elements) {
    return {.spec = spec, .key = key, .rows = 1, .width = elements, .dim = elements};
  }
};

/// REQUIRES: out has from.elements() elements.
void fill_initial_rows(const InitialRows& from, std::span<float> out, ThreadPool& pool);
/// The same of memory of the calling thread's device, in stream order. REQUIRES: a build with CUDA.
void fill_initial_rows(const InitialRows& from, float* out, StreamRef stream);

}  // namespace braid
