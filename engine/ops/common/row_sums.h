// Sums of rows by index: out[index[k]] += values[k], every row's contributions in the order of k, so the bits
// do not depend on threads. Rows are `width` contiguous elements.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {

template <class T>
BRAID_INLINE void add_row(T* sum, const T* row, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) sum[i] += row[i];
}

/// `out` is [rows, width]; rows that no index names become zero.
template <class T>
void sum_rows(ThreadPool& pool, const IndexGroups& groups, const T* values, std::int64_t width,
              std::int64_t rows, T* out) {
  pool.parallel_range(rows * width, kElementGrain,
                      [&](std::int64_t begin, std::int64_t end) { std::fill(out + begin, out + end, T{}); });
  pool.parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t g = first; g < last; ++g) {
      T* row = out + groups.index(g) * width;
      std::copy_n(values + groups.position(groups.begin(g)) * width, width, row);
      for (std::int64_t e = groups.begin(g) + 1; e < groups.end(g); ++e)
        add_row(row, values + groups.position(e) * width, width);
    }
  });
}

}  // namespace braid
