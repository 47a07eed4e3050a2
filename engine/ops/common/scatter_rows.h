// What scatters do with a row and its update, and the loop over them: row[i] = row[i] op update[i]. Updates
// of one row are taken in the order of their positions, so duplicates all count and the last one of an Update
// stays.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"

namespace braid::scatter {

#define BRAID_SCATTER(name, expression)                      \
  struct name {                                              \
    template <class T>                                       \
    BRAID_INLINE static T apply(T a [[maybe_unused]], T b) { \
      return static_cast<T>(expression);                     \
    }                                                        \
  };
BRAID_SCATTER(Update, b)
BRAID_SCATTER(Add, wrapping_t<T>(a) + wrapping_t<T>(b))
BRAID_SCATTER(Sub, wrapping_t<T>(a) - wrapping_t<T>(b))
BRAID_SCATTER(Mul, wrapping_t<T>(a) * wrapping_t<T>(b))
BRAID_SCATTER(Div, a / b)
BRAID_SCATTER(Min, b < a || b != b ? b : a)
BRAID_SCATTER(Max, b > a || b != b ? b : a)
#undef BRAID_SCATTER

/// `update_stride` is 1, or 0 when one scalar updates everything. S is what the rows are stored as.
template <class Op, class S, class T>
void rows(ThreadPool& pool, const IndexGroups& groups, std::int64_t width, const T* updates,
          std::int64_t update_stride, S* target) {
  pool.parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t g = first; g < last; ++g) {
      S* row = target + groups.index(g) * width;
      for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e) {
        const T* update = updates + groups.position(e) * width * update_stride;
        for (std::int64_t i = 0; i < width; ++i)
          row[i] = static_cast<S>(Op::apply(static_cast<T>(row[i]), update[i * update_stride]));
      }
    }
  });
}

}  // namespace braid::scatter
